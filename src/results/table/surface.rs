//! The medium on which a table is shown.

use std::io::{IsTerminal, stdout};

/// The width of a table that is not written to a terminal, such as one in a file or a log.
const USUAL_WIDTH: u16 = 100;

/// The medium on which a table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surface {
    /// The number of characters in a line; `None` for lines as long as the table needs.
    pub width: Option<u16>,
    /// Whether lines are ruled and the best cells bold, as on a terminal. Otherwise the text is ASCII, and the best cells
    /// are marked with `*`.
    pub is_terminal: bool,
}

impl Surface {
    /// Plain text with lines as long as needed.
    pub const PLAIN: Surface = Surface { width: None, is_terminal: false };

    /// Returns the surface of standard output.
    pub fn of_stdout() -> Self {
        // A launcher of several processes inserts a terminal without a size.
        let is_terminal = stdout().is_terminal() && crate::machine::parallel::processes() == 1;
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let found = if is_terminal { comfy_table::Table::new().width() } else { columns };
        Surface { width: Some(found.filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)), is_terminal }
    }

    /// Returns the same surface with lines as long as needed.
    pub fn without_limit(self) -> Self {
        Surface { width: None, ..self }
    }

    /// Returns whether the surface shows colours: a terminal does unless the variable `NO_COLOR` forbids it.
    pub fn has_color(self) -> bool {
        self.is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    pub(super) fn limit(self) -> usize {
        self.width.map_or(usize::MAX, usize::from)
    }
}
