//! Tables in Parquet, the form in which the Hub has data sets. Small columns are read whole, as the values of JSON; images are
//! read a few rows at a time, so that a table of 7 GB takes some megabytes of memory.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::Value;

use super::lines::Line;
use crate::base::files::open_file;

mod write;

pub use write::{Column, write};

/// The number of rows whose images are read at once.
const BLOCK: usize = 16;

/// The number of blocks, and of places in a table, that are kept for the threads that decode.
const KEPT: usize = 32;

/// The entry of the footer in which the package `datasets` states the types of columns.
const FEATURES: &str = "huggingface";

/// The kind of values in a column, as far as its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of files, or structs with the field `bytes`.
    Images,
    Texts,
    /// Whole numbers or truth values.
    Numbers,
    Other,
}

/// An open table whose footer has been read.
pub struct Table {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// The first row of each row group, and the number of all rows.
    starts: Vec<usize>,
}

/// Returns the result of `work` on a table. A panic of the library on a damaged file becomes an error.
fn contained<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let found = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("its content contradicts itself")));
    found.with_context(|| format!("{}: is damaged or no Parquet: fetch it again", path.display()))
}

impl Table {
    /// Opens a table.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if its footer is damaged, or if its row groups have other rows than it states.
    pub fn open(path: &Path) -> Result<Table> {
        let file = open_file(path)
            .with_context(|| format!("{}: cannot open; `bella data check` says what to fetch", path.display()))?;
        let (reader, starts) = contained(path, || {
            let reader = SerializedFileReader::new(file)?;
            let mut starts = vec![0_usize];
            for group in reader.metadata().row_groups() {
                let rows = usize::try_from(group.num_rows()).context("a row group of fewer than no rows")?;
                let start = starts.last().copied().unwrap_or(0);
                starts.push(start.checked_add(rows).context("too many rows")?);
            }
            let (stated, found) = (reader.metadata().file_metadata().num_rows(), starts.last().copied().unwrap_or(0));
            ensure!(
                u64::try_from(stated).ok() == Some(found as u64),
                "its footer states {stated} rows, and its row groups have {found}"
            );
            ensure!(found <= u32::MAX as usize, "has {found} rows, more than bella counts");
            Ok((reader, starts))
        })?;
        Ok(Table { path: path.to_path_buf(), reader, starts })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Type {
        self.reader.metadata().file_metadata().schema()
    }

    pub fn columns(&self) -> Vec<&str> {
        self.schema().get_fields().iter().map(|field| field.name()).collect()
    }

    /// Returns the columns with what they hold.
    pub fn kinds(&self) -> Vec<(&str, Kind)> {
        let kind = |field: &Type| match () {
            () if self.leaf(field.name()).is_ok() => Kind::Images,
            () if !field.is_primitive() => Kind::Other,
            () => match field.get_physical_type() {
                Physical::BYTE_ARRAY => Kind::Texts,
                Physical::INT32 | Physical::INT64 | Physical::BOOLEAN => Kind::Numbers,
                _ => Kind::Other,
            },
        };
        self.schema().get_fields().iter().map(|field| (field.name(), kind(field))).collect()
    }

    /// Checks that there is a column.
    ///
    /// # Errors
    /// Fails with the names of the columns if there is none of this name.
    pub fn expect(&self, column: &str) -> Result<()> {
        let columns = self.columns();
        ensure!(
            columns.contains(&column),
            "{}: has no column `{column}`; its columns: {}",
            self.path.display(),
            columns.join(", ")
        );
        Ok(())
    }

    /// Returns the names of the classes that the footer gives the numbers of a column; `None` if it gives none.
    ///
    /// # Errors
    /// Fails if the entry of the footer is no JSON.
    pub fn names(&self, column: &str) -> Result<Option<Vec<String>>> {
        let entries = self.reader.metadata().file_metadata().key_value_metadata();
        let entry = entries.into_iter().flatten().find(|entry| entry.key == FEATURES);
        let Some(text) = entry.and_then(|entry| entry.value.as_ref()) else { return Ok(None) };
        let wrong =
            || format!("{}: the entry `{FEATURES}` of its footer is no JSON: fetch it again", self.path.display());
        let about: Value = serde_json::from_str(text).with_context(wrong)?;
        let names = about.get("info").and_then(|info| info.get("features")?.get(column)?.get("names"));
        let Some(Value::Array(names)) = names else { return Ok(None) };
        Ok(names.iter().map(|name| name.as_str().map(str::to_string)).collect())
    }

    /// Returns the values of some columns, a line a row. A column of bytes is read only if it holds texts.
    ///
    /// # Errors
    /// Fails if there is no such column, or if the table is damaged.
    pub fn lines(&self, columns: &[&str]) -> Result<Vec<Line>> {
        columns.iter().try_for_each(|column| self.expect(column))?;
        let fields = self.schema().get_fields();
        let fields = fields.iter().filter(|field| columns.contains(&field.name())).cloned().collect();
        contained(&self.path, || {
            let wanted = Type::group_type_builder(self.schema().name()).with_fields(fields).build()?;
            let mut lines = Vec::new();
            for (group, start) in self.starts.windows(2).enumerate() {
                let rows = self.reader.get_row_group(group)?;
                for row in RowIter::from_row_group(Some(wanted.clone()), &*rows)? {
                    ensure!(lines.len() < start[1], "row group {group} has more rows than the footer states");
                    lines.push(Line::of_row(&self.path, lines.len(), row?.to_json_value()));
                }
                let (found, stated) = (lines.len() - start[0], start[1] - start[0]);
                ensure!(found == stated, "row group {group} has {found} rows, and the footer states {stated}");
            }
            Ok(lines)
        })
    }

    /// Returns the place among all leaves of the bytes of the files in a column of images, `{bytes, path}` or bytes alone.
    fn leaf(&self, column: &str) -> Result<usize> {
        self.expect(column)?;
        let leaves = self.reader.metadata().file_metadata().schema_descr().columns();
        let at = leaves.iter().position(|leaf| {
            let parts = leaf.path().parts();
            parts[0] == column && (parts.len() == 1 || (parts.len() == 2 && parts[1] == "bytes"))
        });
        let is_text = |at: &usize| {
            let leaf = &leaves[*at];
            leaf.converted_type() == ConvertedType::UTF8 || leaf.logical_type_ref() == Some(&LogicalType::String)
        };
        let at = at.filter(|at| leaves[*at].physical_type() == Physical::BYTE_ARRAY && !is_text(at));
        at.filter(|at| leaves[*at].max_rep_level() == 0).with_context(|| {
            format!(
                "{}: the column `{column}` has no images: must be the bytes of a file, or a struct with the field `bytes`",
                self.path.display()
            )
        })
    }
}

/// The images of a column in several tables.
pub struct Rows {
    tables: Vec<Mutex<Opened>>,
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
        Ok(Rows { tables: tables.into_iter().map(open).collect::<Result<_>>()? })
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
