//! The whole picture: a legend, the panels in two columns (one where two are too narrow), and a line of notes.

use anyhow::{Result, ensure};
use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::style::text_anchor::HPos;
use plotters::style::{FontStyle, WHITE};

use super::comparison::{Comparison, Group};
use super::labels::{INK, MUTED, longest_word, shorten, style, width, wrap};
use super::marks::{Canvas, Fill, mark};
use super::panel::{LABEL_LINE, LABEL_SIZE, LEFT, Panel, QUANTITIES, TOP};
use crate::metrics::Average;

const WIDTH: i32 = 900;
const MARGIN: i32 = 14;
/// Height of the part of a panel that holds the marks.
const PLOT: i32 = 190;
const GAP: i32 = 24;
/// Least pixels of a series within a group, and of a group: below them marks touch and labels become unreadable.
const LEAST_SLOT: i32 = 15;
const LEAST_GROUP: i32 = 76;
/// A group grows for words of its label up to here; longer ones are cut.
const MOST_WORD: f64 = 160.0;

const LEGEND_SIZE: f64 = 17.0;
const LEGEND_LINE: i32 = 28;
const NOTE_SIZE: f64 = 14.0;
const NOTE_LINE: i32 = 19;

/// The picture as SVG text. Error: no row has a value of any quantity.
pub fn render(comparison: &Comparison) -> Result<String> {
    let mut panels = vec![];
    for quantity in QUANTITIES {
        panels.extend(Panel::of(quantity, comparison)?);
    }
    ensure!(!panels.is_empty(), "no row has a value of {}", known_columns());
    let layout = Layout::of(comparison, &panels);
    let mut svg = String::new();
    {
        let canvas =
            SVGBackend::with_string(&mut svg, (layout.width as u32, layout.height() as u32)).into_drawing_area();
        canvas.fill(&WHITE)?;
        layout.draw(&canvas, comparison, &panels)?;
        canvas.present()?;
    }
    Ok(svg)
}

fn known_columns() -> String {
    let columns = QUANTITIES.iter().flat_map(|quantity| quantity.columns);
    columns.map(|(column, _)| *column).collect::<Vec<_>>().join(", ")
}

/// Name of a series and the place of its mark in the legend.
type Entry = (String, (i32, i32));

/// Places of all parts, in pixels.
struct Layout {
    width: i32,
    panel_width: i32,
    panel_height: i32,
    columns: usize,
    panel_rows: i32,
    legend: Vec<Entry>,
    legend_bottom: i32,
    /// Lines of each group's label.
    labels: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Layout {
    fn of(comparison: &Comparison, panels: &[Panel]) -> Self {
        let groups = comparison.groups.len() as i32;
        let texts = group_texts(&comparison.groups);
        let word = texts.iter().flatten().map(|text| longest_word(text, LABEL_SIZE)).fold(0.0, f64::max).min(MOST_WORD);
        let least_group = LEAST_GROUP.max(LEAST_SLOT * (comparison.names.len() as i32 + 1)).max(word.ceil() as i32 + 8);
        let least_panel = LEFT + groups * least_group;
        let half = (WIDTH - 2 * MARGIN - GAP) / 2;
        let columns = if least_panel <= half && panels.len() > 1 { 2 } else { 1 };
        let panel_width = if columns == 2 { half } else { least_panel.max(WIDTH - 2 * MARGIN) };
        let width = (2 * MARGIN + panel_width).max(WIDTH);
        let label_width = f64::from((panel_width - LEFT) / groups - 6);
        let lines = |texts: &Vec<&str>| texts.iter().flat_map(|text| wrap(text, LABEL_SIZE, label_width, 3)).collect();
        let labels: Vec<Vec<_>> = texts.iter().map(lines).collect();
        let label_lines = labels.iter().map(Vec::len).max().unwrap_or(0) as i32;
        let (legend, legend_bottom) = legend(&comparison.names, width);
        Self {
            width,
            panel_width,
            panel_height: TOP + PLOT + 8 + label_lines * LABEL_LINE,
            columns,
            panel_rows: panels.len().div_ceil(columns) as i32,
            legend,
            legend_bottom,
            labels,
            notes: fill_lines(notes(comparison, panels), f64::from(width - 2 * MARGIN)),
        }
    }

    fn height(&self) -> i32 {
        self.notes_top() + self.notes.len() as i32 * NOTE_LINE + MARGIN / 2
    }

    fn notes_top(&self) -> i32 {
        self.legend_bottom + self.panel_rows * (self.panel_height + GAP / 2)
    }

    fn draw(&self, canvas: &Canvas, comparison: &Comparison, panels: &[Panel]) -> Result<()> {
        debug_assert_eq!(self.legend.len(), comparison.names.len());
        for (series, (name, (x, y))) in self.legend.iter().enumerate() {
            mark(canvas, series, (*x, *y), 6.0, Fill::Solid)?;
            canvas.draw_text(name, &style(LEGEND_SIZE, INK, HPos::Left, FontStyle::Normal), (x + 14, *y))?;
        }
        for (place, panel) in panels.iter().enumerate() {
            let (row, column) = ((place / self.columns) as i32, (place % self.columns) as i32);
            let x = MARGIN + column * (self.panel_width + GAP);
            let y = self.legend_bottom + row * (self.panel_height + GAP / 2);
            panel.draw(canvas, x..x + self.panel_width, y..y + self.panel_height, &self.labels)?;
        }
        for (place, text) in self.notes.iter().enumerate() {
            let y = self.notes_top() + 8 + place as i32 * NOTE_LINE;
            canvas.draw_text(text, &style(NOTE_SIZE, MUTED, HPos::Left, FontStyle::Normal), (MARGIN, y))?;
        }
        Ok(())
    }
}

/// Entries from left to right, in as many lines as they need, and where the legend ends.
fn legend(names: &[String], picture_width: i32) -> (Vec<Entry>, i32) {
    let (mut x, mut y) = (MARGIN, MARGIN + LEGEND_LINE / 2);
    let mut entries = vec![];
    for name in names {
        let name = shorten(name, LEGEND_SIZE, f64::from(picture_width - 2 * MARGIN - 20));
        let entry_width = 20 + width(&name, LEGEND_SIZE).ceil() as i32;
        if x + entry_width > picture_width - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        entries.push((name, (x + 6, y)));
        x += entry_width + 26;
    }
    (entries, y + LEGEND_LINE / 2 + 4)
}

/// Condition, and the test set where there are several (alone where nothing was done to any). An origin in brackets
/// that all conditions share goes to the notes.
fn group_texts(groups: &[Group]) -> Vec<Vec<&str>> {
    let (sets, shared) = (several_sets(groups), shared_origin(groups).is_some());
    let all_clean = groups.iter().all(|group| group.condition == "clean");
    let condition = |group| if shared { split_origin(group).0 } else { group };
    let texts = groups.iter().map(|group| match (sets, all_clean) {
        (true, true) => vec![group.set.as_str()],
        (true, false) => vec![condition(&group.condition), &group.set],
        (false, _) => vec![condition(&group.condition)],
    });
    texts.collect()
}

fn several_sets(groups: &[Group]) -> bool {
    groups.windows(2).any(|pair| pair[0].set != pair[1].set)
}

/// `gaussian-noise:3 (bella)` is `gaussian-noise:3` from `bella`.
fn split_origin(condition: &str) -> (&str, Option<&str>) {
    match condition.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((name, origin)) => (name, Some(origin)),
        None => (condition, None),
    }
}

fn shared_origin(groups: &[Group]) -> Option<&str> {
    let mut origins = groups.iter().filter_map(|group| split_origin(&group.condition).1);
    let first = origins.next()?;
    origins.all(|origin| origin == first).then_some(first)
}

/// Notes side by side as long as they fit into `limit` pixels, then on the next line.
fn fill_lines(notes: Vec<String>, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for note in notes {
        match lines.last_mut() {
            Some(line) if width(&format!("{line}  ·  {note}"), NOTE_SIZE) <= limit => {
                *line = format!("{line}  ·  {note}")
            }
            _ => lines.push(shorten(&note, NOTE_SIZE, limit)),
        }
    }
    lines
}

/// What a reader must know and no axis says.
fn notes(comparison: &Comparison, panels: &[Panel]) -> Vec<String> {
    let mut notes = vec![];
    if let Some(group) =
        comparison.groups.first().filter(|group| !several_sets(&comparison.groups) && !group.set.is_empty())
    {
        notes.push(format!("test set {}", group.set));
    }
    if let Some(origin) = shared_origin(&comparison.groups) {
        notes.push(format!("corruption:severity by {origin}"));
    }
    let seeds = panels.iter().map(Panel::seeds);
    match seeds.fold((usize::MAX, 0), |(least, most), (low, high)| (least.min(low), most.max(high))) {
        (_, 0 | 1) => {}
        (least, most) if least == most => {
            notes.push(format!("mean of {most} seeds, whiskers min to max, small dots single seeds"))
        }
        (_, most) => notes.push(format!("mean of up to {most} seeds, whiskers min to max, small dots single seeds")),
    }
    notes.push(format!("predictions: {}", Average::Logit.words()));
    if panels.iter().any(Panel::shows_information) {
        notes.push("MI: mutual information, which one member alone does not have".to_string());
    }
    notes
}
