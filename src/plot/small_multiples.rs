//! Small multiples: a chart of many series becomes several blocks with the same axes below each other, since marks and
//! colours of more than [`MOST_SERIES`] series cannot be told apart in one panel.

use super::chart::Chart;
use super::panel::{Joined, Layer, Panel};

/// The most series in one block.
pub const MOST_SERIES: usize = 8;

/// The most blocks of one chart. A chart of more series says how many it leaves out.
const MOST_BLOCKS: usize = 5;

impl Chart {
    /// Returns the blocks of the chart from top to bottom: the chart itself if its legend is short enough. The notes
    /// stand below the last block.
    pub(super) fn blocks(&self) -> Vec<Chart> {
        if self.legend.len() <= MOST_SERIES {
            return vec![self.clone()];
        }
        let shown = &self.legend[..self.legend.len().min(MOST_BLOCKS * MOST_SERIES)];
        let size = shown.len().div_ceil(shown.len().div_ceil(MOST_SERIES));
        let mut blocks: Vec<Chart> = shown.chunks(size).map(|some| self.block(some, size)).collect();
        if let Some(last) = blocks.last_mut() {
            last.notes.clone_from(&self.notes);
            let left_out = self.legend.len() - shown.len();
            if left_out > 0 {
                last.notes.push(format!("{left_out} more methods and settings stand in the tables."));
            }
        }
        blocks
    }

    /// Returns the chart with a part of its legend, the layers of these series in `slots` slots, and no notes.
    fn block(&self, legend: &[super::Entry], slots: usize) -> Chart {
        let paints: Vec<usize> = legend.iter().map(|entry| entry.paint).collect();
        let panels = self.panels.iter().filter_map(|panel| panel.of_series(&paints, slots)).collect();
        Chart { legend: legend.to_vec(), panels, notes: vec![], ..self.clone() }
    }
}

impl Panel {
    /// Returns the panel with the layers of some series and those that belong to none. `None` if it has none of these
    /// series, though it has others.
    fn of_series(&self, paints: &[usize], slots: usize) -> Option<Panel> {
        let own: Vec<&Layer> =
            self.layers.iter().filter(|layer| layer.paint().is_none_or(|paint| paints.contains(&paint))).collect();
        let is_painted = |layer: &&Layer| layer.paint().is_some();
        if self.layers.iter().any(|layer| is_painted(&layer)) && !own.iter().any(is_painted) {
            return None;
        }
        let layers = own.into_iter().map(|layer| layer.ranked_among(paints, slots)).collect();
        Some(Panel { layers, ..self.clone() })
    }
}

impl Layer {
    /// Returns the number of the layer's series. `None` if the layer belongs to no series.
    fn paint(&self) -> Option<usize> {
        match self {
            Self::Means { paint, .. }
            | Self::Curve { paint, .. }
            | Self::Area { paint, .. }
            | Self::Dots { paint, .. }
            | Self::Bar { paint, .. } => Some(*paint),
            Self::Reference { .. } | Self::Map(_) | Self::Named { .. } | Self::Texts { .. } | Self::Matrix(_) => None,
        }
    }

    /// Returns the layer with its marks in the slot of its series. Every block has the same number of slots, so that all
    /// panels are equally wide.
    fn ranked_among(&self, paints: &[usize], slots: usize) -> Layer {
        let mut layer = self.clone();
        if let Layer::Means { paint, joined: Joined::Apart { rank, count }, .. } = &mut layer {
            *rank = paints.iter().position(|other| other == paint).unwrap_or(*rank);
            *count = slots;
        }
        layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Entry, Mean, Swatch, Ticks};

    /// Returns a chart of `count` series: one panel with a mark of each, and one panel with a mark of the last alone.
    fn chart(count: usize) -> Chart {
        let mark = |paint: usize| {
            let points = vec![Mean::of(0.0, &[paint as f64]).unwrap()];
            Layer::Means { paint, joined: Joined::Apart { rank: paint, count }, points }
        };
        let panel = |layers: Vec<Layer>| Panel {
            title: String::new(),
            x: Axis::new("", Ticks::Names(vec!["clean".into()])),
            y: Axis::new("", Ticks::between(0.0, count as f64)),
            layers,
            values: false,
        };
        Chart {
            legend: (0..count).map(|paint| Entry { name: format!("s{paint}"), paint, swatch: Swatch::Mark }).collect(),
            panels: vec![panel((0..count).map(mark).collect()), panel(vec![mark(count - 1)])],
            columns: 2,
            plot_height: 100,
            notes: vec!["a note".into()],
            ..Chart::default()
        }
    }

    #[test]
    fn eight_series_share_one_block() {
        let blocks = chart(8).blocks();
        assert_eq!((blocks.len(), blocks[0].panels.len(), blocks[0].panels[0].layers.len()), (1, 2, 8));
    }

    #[test]
    fn more_series_stand_in_blocks_with_their_own_marks() {
        let blocks = chart(11).blocks();
        assert_eq!(blocks.iter().map(|block| block.legend.len()).collect::<Vec<_>>(), [6, 5]);
        assert_eq!(blocks.iter().map(|block| block.panels.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(blocks.iter().map(|block| block.notes.len()).collect::<Vec<_>>(), [0, 1]);
        let Layer::Means { paint, joined, .. } = &blocks[1].panels[0].layers[0] else { panic!("marks were expected") };
        assert_eq!((*paint, *joined), (6, Joined::Apart { rank: 0, count: 6 }));
        let drawn = chart(11).render();
        assert_eq!(drawn.matches("<svg").count(), 1);
        assert!((0..11).all(|series| drawn.contains(&format!(">s{series}<"))), "{drawn}");
    }

    #[test]
    fn a_chart_says_how_many_series_it_leaves_out() {
        let blocks = chart(43).blocks();
        assert_eq!(blocks.len(), 5);
        assert_eq!(blocks[4].notes, ["a note", "3 more methods and settings stand in the tables."]);
    }
}
