//! The images of a column of tables, which are read a few rows at a time, so that a table of 7 GB takes some megabytes of memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::reader::FileReader;

use super::{Table, contained};

/// The number of rows whose images are read at once.
const BLOCK: usize = 16;

/// The number of blocks, and of places in a table, that are kept for the threads that decode.
const KEPT: usize = 32;

/// The images of a column in several tables.
pub struct Rows {
    tables: Vec<Mutex<Opened>>,
    column: String,
}

/// A column of images that is being read.
struct Opened {
    table: Table,
    leaf: usize,
    /// Places in the column, the last one used at the end.
    cursors: VecDeque<Cursor>,
    /// The first rows of blocks with their files, the last one read at the end.
    blocks: VecDeque<(usize, Arc<Vec<Option<ByteArray>>>)>,
}

struct Cursor {
    group: usize,
    /// The next row, counted from the start of the group.
    next: usize,
    reader: ColumnReaderImpl<ByteArrayType>,
    /// The definition level of a file that is there.
    level: i16,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "images of {} tables", self.tables.len())
    }
}

impl Rows {
    /// Takes the column of images of tables.
    ///
    /// # Errors
    /// Fails if a table has no such column, or if it holds no images.
    pub fn new(tables: Vec<Table>, column: &str) -> Result<Rows> {
        let open = |table: Table| {
            let leaf = table.leaf(column)?;
            Ok(Mutex::new(Opened { table, leaf, cursors: VecDeque::new(), blocks: VecDeque::new() }))
        };
        Ok(Rows { tables: tables.into_iter().map(open).collect::<Result<_>>()?, column: column.to_string() })
    }

    /// Returns the name of the column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Returns the file of an image.
    ///
    /// # Errors
    /// Fails if the table is damaged, or if the row has no image.
    pub fn bytes(&self, table: usize, row: usize) -> Result<Vec<u8>> {
        let table = self.tables.get(table).context("a table that there is not")?;
        // A thread that panicked has left a cursor behind at worst, and each is checked when it is used.
        let mut opened = table.lock().unwrap_or_else(PoisonError::into_inner);
        let path = opened.table.path.clone();
        let block = contained(&path, || opened.block(row))?;
        let file = block.1.get(row - block.0).and_then(Option::as_ref);
        let file = file.with_context(|| format!("{}:{}: has no image: its bytes are null", path.display(), row + 1))?;
        Ok(file.data().to_vec())
    }
}

impl Opened {
    /// Returns the block of a row with the number of its first row.
    fn block(&mut self, row: usize) -> Result<(usize, Arc<Vec<Option<ByteArray>>>)> {
        let starts = &self.table.starts;
        let group =
            starts.partition_point(|start| *start <= row).checked_sub(1).filter(|group| group + 1 < starts.len());
        let group = group.with_context(|| format!("has no row {row}"))?;
        let (first, end) = (starts[group], starts[group + 1]);
        let start = first + (row - first) / BLOCK * BLOCK;
        if let Some(known) = self.blocks.iter().find(|(known, _)| *known == start) {
            return Ok(known.clone());
        }
        let count = BLOCK.min(end - start);
        let mut cursor = self.cursor(group, start - first)?;
        let block = (start, Arc::new(cursor.read(count)?));
        self.cursors.push_back(cursor);
        self.blocks.push_back(block.clone());
        if self.cursors.len() > KEPT {
            self.cursors.pop_front();
        }
        if self.blocks.len() > KEPT {
            self.blocks.pop_front();
        }
        Ok(block)
    }

    /// Returns a cursor at a row of a group: the nearest one before it, or a new one.
    fn cursor(&mut self, group: usize, row: usize) -> Result<Cursor> {
        let fits = |(_, cursor): &(usize, &Cursor)| cursor.group == group && cursor.next <= row;
        let nearest = self.cursors.iter().enumerate().filter(fits).max_by_key(|(_, cursor)| cursor.next);
        let known = nearest.map(|(at, _)| at).and_then(|at| self.cursors.remove(at));
        let mut cursor = match known {
            Some(cursor) => cursor,
            None => {
                let reader = self.table.reader.get_row_group(group)?.get_column_reader(self.leaf)?;
                let ColumnReader::ByteArrayColumnReader(reader) = reader else { bail!("its images are no bytes") };
                let level =
                    self.table.reader.metadata().file_metadata().schema_descr().column(self.leaf).max_def_level();
                Cursor { group, next: 0, reader, level }
            }
        };
        let ahead = row - cursor.next;
        let skipped = cursor.reader.skip_records(ahead)?;
        ensure!(skipped == ahead, "row group {group} has fewer images than rows");
        cursor.next = row;
        Ok(cursor)
    }
}

impl Cursor {
    /// Reads the images of the next rows; `None` stands for a null.
    fn read(&mut self, count: usize) -> Result<Vec<Option<ByteArray>>> {
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let (records, _, _) = self.reader.read_records(count, Some(&mut levels), None, &mut values)?;
        ensure!(records == count, "row group {} has fewer images than rows", self.group);
        self.next += records;
        // A column without nulls has no levels.
        if self.level == 0 {
            return Ok(values.into_iter().map(Some).collect());
        }
        let mut values = values.into_iter();
        Ok(levels.iter().map(|level| if *level < self.level { None } else { values.next() }).collect())
    }
}
