//! A table of text with named columns, and rows that are put into it: after the others, or in place of the row that measures the same.

use crate::base::outside::printable;

/// One row to be stored, as pairs of column and value. New columns are added in this order. An empty value is an empty
/// cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    cells: Vec<(String, String)>,
}

impl Row {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, column: impl Into<String>, value: impl Into<String>) {
        self.cells.push((column.into(), value.into()));
    }

    /// Adds a number with all its digits, so that it reads back to the same f64. `None` adds an empty cell.
    pub fn push_number(&mut self, column: impl Into<String>, value: Option<f64>) {
        self.push(column, value.map(|number| number.to_string()).unwrap_or_default());
    }

    pub fn cells(&self) -> &[(String, String)] {
        &self.cells
    }

    pub fn get(&self, column: &str) -> Option<&str> {
        self.cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }
}

/// The cells that decide whether two rows measure the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The columns that must be equal.
    pub keys: &'a [&'a str],
    /// The sets of images that must be the same.
    pub images: &'a [ImageColumns],
    /// Returns whether the old row and the new one come from the same predictions. The new row then keeps the cells of the
    /// old one that it does not compute. `None` if a row is always replaced as a whole.
    pub keeps: Option<fn(&Row, &Row) -> bool>,
}

/// The two columns that identify the images of a row.
#[derive(Clone, Copy, Debug)]
pub struct ImageColumns {
    /// The fingerprint of the images.
    pub fingerprint: &'static str,
    /// The number of images.
    pub count: &'static str,
}

/// A whole CSV file as text. Every row has one cell per column, empty if there is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Table { columns: columns.into_iter().map(String::from).collect(), rows: Vec::new() }
    }

    /// Returns the first row with these cells.
    pub fn find(&self, cells: &[(&str, String)]) -> Option<Row> {
        let fits = |row: &usize| cells.iter().all(|(column, value)| self.get(*row, column) == Some(value));
        (0..self.rows.len()).find(fits).map(|place| self.row(place))
    }

    /// Returns the table as it may be shown on a terminal.
    pub fn printable(&self) -> Table {
        let shown = |cells: &Vec<String>| cells.iter().map(|cell| printable(cell).into_owned()).collect();
        Table { columns: self.columns.clone(), rows: self.rows.iter().map(shown).collect() }
    }

    /// Returns the index of a column.
    pub fn index(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    /// Returns a cell. `None` if there is no such column or row.
    pub fn get(&self, row: usize, column: &str) -> Option<&str> {
        Some(self.rows.get(row)?.get(self.index(column)?)?.as_str())
    }

    /// Returns the indices of several columns, for [`Table::cell`].
    pub fn places<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> Vec<Option<usize>> {
        columns.into_iter().map(|column| self.index(column)).collect()
    }

    /// Returns the cell of a row in a column whose index is known. Empty if there is no such column.
    pub fn cell(&self, row: usize, place: Option<usize>) -> &str {
        place.map_or("", |place| &self.rows[row][place])
    }

    /// Adds all rows of another table at the end. Columns that this table lacks are appended, with empty cells in older
    /// rows.
    pub fn extend(&mut self, other: Table) {
        let places: Vec<usize> = other.columns.iter().map(|column| self.add_column(column)).collect();
        let is_same = places.iter().copied().eq(0..self.columns.len());
        if is_same {
            self.rows.extend(other.rows);
            return;
        }
        for row in other.rows {
            let mut cells = vec![String::new(); self.columns.len()];
            places.iter().zip(row).for_each(|(place, value)| cells[*place] = value);
            self.rows.push(cells);
        }
    }

    /// Returns the index of a column, which is appended if the table lacks it.
    pub fn add_column(&mut self, column: &str) -> usize {
        self.index(column).unwrap_or_else(|| {
            self.columns.push(column.to_string());
            self.rows.iter_mut().for_each(|cells| cells.push(String::new()));
            self.columns.len() - 1
        })
    }

    /// Adds `row` at the end. Its new columns are appended, with empty cells in older rows.
    pub fn append(&mut self, row: &Row) {
        let cells = self.align(row);
        self.rows.push(cells);
    }

    /// Replaces the row that measures the same as `row` and returns it, or adds `row` at the end if there is none. None of
    /// the old row's cells survive in columns that `row` lacks, unless [`Identity::keeps`] says that both rows agree.
    pub fn upsert(&mut self, row: &Row, identity: &Identity) -> Option<Row> {
        let cells = self.align(row);
        let equal = |old: &[String], column: &str| self.index(column).is_none_or(|at| old[at] == cells[at]);
        let fingerprints = identity.images.iter().map(|images| images.fingerprint);
        let same = |old: &Vec<String>| identity.keys.iter().copied().chain(fingerprints.clone()).all(|c| equal(old, c));
        match self.rows.iter().position(same) {
            Some(place) => {
                let replaced = self.row(place);
                let mut cells = cells;
                if identity.keeps.is_some_and(|agree| agree(&replaced, row)) {
                    let empty = cells.iter_mut().zip(&self.rows[place]).filter(|(cell, _)| cell.is_empty());
                    empty.for_each(|(cell, old)| cell.clone_from(old));
                }
                self.rows[place] = cells;
                Some(replaced)
            }
            None => {
                self.rows.push(cells);
                None
            }
        }
    }

    /// Returns the row at `place`, with the names of its columns.
    pub fn row(&self, place: usize) -> Row {
        let mut row = Row::new();
        self.columns.iter().zip(&self.rows[place]).for_each(|(column, value)| row.push(column, value));
        row
    }

    /// Returns the cells of `row` in the order of the table's columns. Columns that the table lacks are added first.
    fn align(&mut self, row: &Row) -> Vec<String> {
        let places: Vec<usize> = row.cells.iter().map(|(column, _)| self.add_column(column)).collect();
        let mut cells = vec![String::new(); self.columns.len()];
        // The first of two cells of one column counts, as in `Row::get`.
        places.iter().zip(&row.cells).rev().for_each(|(place, (_, value))| cells[*place].clone_from(value));
        cells
    }
}
