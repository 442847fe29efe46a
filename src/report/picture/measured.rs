//! A quantity of the picture with its values, and the panel that shows it.

use anyhow::{Context, Result};

use super::comparison::Comparison;
use crate::base::small::capital;
use crate::metrics::{self, Better};
use crate::plot::{Axis, Fill, Joined, Layer, Mean, Panel, Scale, Ticks};

/// The quantity that a panel shows.
pub struct Quantity {
    /// The column that defines the name, the unit and the direction of the quantity.
    pub of: &'static str,
    /// The columns that are drawn, each with the fill of its marks. Two columns stand side by side, joined by a line.
    pub columns: &'static [(&'static str, Fill)],
}

/// A quantity with its values. Each column of `values` has shape `[series][group][seed]`.
pub struct Measured {
    quantity: &'static Quantity,
    metric: metrics::Column,
    values: Vec<(Fill, Vec<Vec<Vec<f64>>>)>,
}

impl Measured {
    /// Returns `None` if the results hold no value of the quantity.
    pub fn of(quantity: &'static Quantity, comparison: &Comparison) -> Result<Option<Self>> {
        let metric = metrics::of_column(quantity.of).with_context(|| format!("no metric `{}`", quantity.of))?;
        let mut values = vec![];
        for (column, fill) in quantity.columns {
            values.extend(comparison.values(column, metric.factor())?.map(|seeds| (*fill, seeds)));
        }
        Ok((!values.is_empty()).then_some(Self { quantity, metric, values }))
    }

    /// Returns the number of seeds behind each mark.
    pub fn seeds(&self) -> impl Iterator<Item = usize> {
        self.values.iter().flat_map(|(_, all)| all.iter().flatten()).map(Vec::len).filter(|count| *count > 0)
    }

    /// Returns whether the quantity is mutual information.
    pub fn is_information(&self) -> bool {
        self.quantity.columns.len() > 1
    }

    pub fn panel(&self, groups: &[String]) -> Panel {
        let scale = Scale::around(self.values.iter().flat_map(|(_, all)| all.iter().flatten().flatten().copied()));
        let hint = match self.metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "hollow: correct, filled: wrong predictions",
        };
        let hint = match scale.low {
            0.0 => hint.to_string(),
            low => format!("{hint}, axis from {}", scale.tick(low)),
        };
        let count = self.values[0].1.len();
        let layer = |series: usize| {
            let columns = |group: usize| self.values.iter().map(move |(fill, all)| (*fill, &all[series][group]));
            let means = |group: usize| {
                columns(group).filter_map(move |(fill, seeds)| Some(Mean::of(group as f64, seeds)?.filled(fill)))
            };
            let points = (0..groups.len()).flat_map(means).collect();
            Layer::Means { paint: series, joined: Joined::Apart { rank: series, count }, points }
        };
        Panel {
            title: capital(&self.metric.label()),
            x: Axis::new("", Ticks::Names(groups.to_vec())),
            y: Axis::new(hint, Ticks::Numbers(scale)),
            layers: (0..count).map(layer).collect(),
            values: true,
        }
    }
}
