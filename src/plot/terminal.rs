//! Curves as text, for a terminal of any width: dots of braille in colours, or letters where there is no colour.
//!
//! The crates that draw in terminals (textplots, rasciigraph) tell curves apart by colour alone, and ratatui brings thirty
//! crates for one widget.

use super::axis::Scale;

/// The rows and columns of dots in a braille character.
const DOTS: (usize, usize) = (4, 2);

/// The bits of the dots of a braille character, by row and column.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// ANSI colours of curves, in turn.
const COLORS: [u8; 6] = [36, 33, 35, 32, 34, 31];

/// The characters that curves are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Braille dots in colours.
    Color,
    /// Braille dots without colour, for charts of one curve.
    Dots,
    /// The letter of each curve, in ASCII.
    Letters,
}

impl Ink {
    /// Returns a text in the colour of a curve, if there are colours.
    pub fn paint(self, curve: usize, text: &str) -> String {
        match self {
            Ink::Color => format!("\u{1b}[{}m{text}\u{1b}[0m", COLORS[curve % COLORS.len()]),
            Ink::Dots | Ink::Letters => text.to_string(),
        }
    }

    fn rules(self) -> [char; 3] {
        if self == Ink::Letters { ['|', '+', '-'] } else { ['│', '└', '─'] }
    }
}

/// Returns the letter that stands for a curve: a, b, c, …
pub fn letter(curve: usize) -> char {
    char::from(b'a' + (curve % 26) as u8)
}

/// A chart of several curves over the same axes.
pub struct TextChart<'a> {
    pub title: String,
    /// The title of the horizontal axis.
    pub along: &'a str,
    /// The points `(x, y)` of each curve, in the order of x. A curve may have none.
    pub curves: Vec<Vec<(f64, f64)>>,
}

impl TextChart<'_> {
    /// Returns the lines of the chart, each `width` characters wide; `height` counts those of the curves, to which the
    /// title and two lines of the horizontal axis are added. `None` if no value is finite.
    pub fn lines(&self, (width, height): (usize, usize), ink: Ink) -> Option<Vec<String>> {
        let points = || self.curves.iter().flatten().filter(|(_, y)| y.is_finite());
        points().next()?;
        let scale = Scale::around(points().map(|(_, y)| *y));
        let (first, last) = points().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
        let labels = row_labels(&scale, height);
        let margin = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let mut canvas = Canvas::new(width.saturating_sub(margin + 2).max(4), height);
        for (at, curve) in self.curves.iter().enumerate() {
            let place = |(x, y): &(f64, f64)| {
                let share = if last > first { (x - first) / (last - first) } else { 0.0 };
                y.is_finite().then(|| canvas.place(share, scale.share(*y)))
            };
            let places: Vec<_> = curve.iter().filter_map(place).collect();
            canvas.curve(at, &places);
        }
        let [side, corner, rule] = ink.rules();
        let mut lines = vec![fitted(&self.title, width)];
        for (row, label) in labels.iter().enumerate() {
            lines.push(format!("{label:>margin$} {side}{}", canvas.row(row, ink)));
        }
        let space = " ".repeat(margin + 1);
        lines.push(format!("{space}{corner}{}", rule.to_string().repeat(canvas.width)));
        lines.push(format!("{space} {}", ends((first, last), self.along, canvas.width)));
        Some(lines)
    }
}

/// Returns the label of each row; empty where there is no tick. Between two labels there is at least one row.
fn row_labels(scale: &Scale, height: usize) -> Vec<String> {
    let mut labels = vec![String::new(); height];
    let ticks: Vec<f64> = scale.ticks().collect();
    let row = |tick: &f64| ((1.0 - scale.share(*tick)) * (height - 1) as f64).round() as usize;
    let is_apart = |stride: &usize| ticks.iter().step_by(*stride).is_sorted_by(|a, b| row(a) >= row(b) + 2);
    let stride = (1..=ticks.len()).find(is_apart).unwrap_or(1);
    for tick in ticks.iter().step_by(stride).filter(|tick| row(tick) < height) {
        labels[row(tick)] = scale.tick(*tick);
    }
    labels
}

/// Returns the line below an axis: its first value, its title and its last value.
fn ends((first, last): (f64, f64), title: &str, width: usize) -> String {
    if last <= first {
        return format!("{:<width$}", format!("{title} {first}"));
    }
    let (first, last) = (first.to_string(), last.to_string());
    let room = width.saturating_sub(first.len() + last.len());
    let title = if title.len() + 2 <= room { title } else { "" };
    format!("{first}{title:^room$}{last}")
}

/// Returns a text cut or filled to `width` characters.
fn fitted(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    format!("{cut:<width$}")
}

/// Cells of braille dots, each with the last curve that went through it.
struct Canvas {
    width: usize,
    cells: Vec<Vec<(u8, usize)>>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, cells: vec![vec![(0, 0); width]; height] }
    }

    /// Returns the dot, as row and column, at the shares of the axes.
    fn place(&self, x: f64, y: f64) -> (i64, i64) {
        let (rows, columns) = (self.cells.len() * DOTS.0 - 1, self.width * DOTS.1 - 1);
        let at = |share: f64, last: usize| (share.clamp(0.0, 1.0) * last as f64).round() as i64;
        (at(1.0 - y, rows), at(x, columns))
    }

    /// Draws lines between neighbouring places; a single one becomes a thick dot.
    fn curve(&mut self, curve: usize, places: &[(i64, i64)]) {
        if let [(row, column)] = places {
            for (down, right) in [(0, 0), (0, 1), (-1, 0), (-1, 1)] {
                self.dot(curve, row + down, column + right);
            }
        }
        for pair in places.windows(2) {
            let [(row, column), (to_row, to_column)] = [pair[0], pair[1]];
            let steps = (to_row - row).abs().max((to_column - column).abs()).max(1);
            let between =
                |from: i64, to: i64, step: i64| from + (((to - from) * step) as f64 / steps as f64).round() as i64;
            (0..=steps).for_each(|step| self.dot(curve, between(row, to_row, step), between(column, to_column, step)));
        }
    }

    fn dot(&mut self, curve: usize, row: i64, column: i64) {
        let (Ok(row), Ok(column)) = (usize::try_from(row), usize::try_from(column)) else { return };
        let line = self.cells.get_mut(row / DOTS.0);
        if let Some(cell) = line.and_then(|line| line.get_mut(column / DOTS.1)) {
            *cell = (cell.0 | BITS[row % DOTS.0][column % DOTS.1], curve);
        }
    }

    fn row(&self, row: usize, ink: Ink) -> String {
        let cells = self.cells[row].iter();
        let drawn = cells.map(|(bits, curve)| match (bits, ink) {
            (0, _) => " ".to_string(),
            (_, Ink::Letters) => letter(*curve).to_string(),
            _ => ink.paint(*curve, &char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ').to_string()),
        });
        drawn.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falling() -> TextChart<'static> {
        let curve = |start: f64| (1..=5).map(|epoch| (f64::from(epoch), start / f64::from(epoch))).collect();
        TextChart { title: "loss".into(), along: "epoch", curves: vec![curve(1.0), curve(2.0)] }
    }

    #[test]
    fn letters_tell_curves_apart() {
        let lines = falling().lines((30, 6), Ink::Letters).unwrap();
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        let expected = [
            "loss",
            "2.0 |bb",
            "    |  bb",
            "    |    bb",
            "1.0 |aaaaa bbbbbbbb",
            "    |    aaaaaaaaaabbbbbbbbbbb",
            "0.0 |               aaaaaaaaaa",
            "    +-------------------------",
            "     1         epoch         5",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn dots_join_the_corners() {
        let chart = TextChart { title: String::new(), along: "x", curves: vec![vec![(0.0, 0.0), (1.0, 1.0)]] };
        let lines = chart.lines((9, 3), Ink::Dots).unwrap();
        assert_eq!(
            lines[1..4].iter().map(|line| &line[..]).collect::<Vec<_>>(),
            ["0.8 │  ⢀⠎", "    │ ⢠⠃ ", "0.0 │⡰⠁  "]
        );
    }

    #[test]
    fn values_that_are_not_finite_are_gaps() {
        let chart = |y| TextChart { title: String::new(), along: "x", curves: vec![vec![(1.0, y)], vec![]] };
        assert!(chart(f64::NAN).lines((20, 4), Ink::Dots).is_none());
        let one = chart(0.5).lines((20, 4), Ink::Letters).unwrap();
        assert!(one.last().unwrap().contains("x 1") && one.concat().contains('a'), "{one:#?}");
        assert!(one.iter().all(|line| line.chars().count() == 20), "{one:#?}");
    }
}
