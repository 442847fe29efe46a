//! Tables in Parquet, the form in which the Hub has data sets. Small columns are read whole, as the values of JSON; for images see
//! [`Rows`]. The writers of small sets make small tables.

mod images;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use serde_json::Value;

use super::lines::Line;
use crate::base::files::{open_file, put};

pub use images::Rows;

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
    /// Fails with the names of the columns if there is none of this name, and if there are several of it.
    pub fn expect(&self, column: &str) -> Result<()> {
        let (columns, path) = (self.columns(), self.path.display());
        let count = columns.iter().filter(|name| **name == column).count();
        ensure!(count > 0, "{path}: has no column `{column}`; its columns: {}", columns.join(", "));
        ensure!(count == 1, "{path}: has several columns `{column}`: rename all but one");
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

    /// Returns what `of` makes of the values of some columns, a line a row, of which one at a time is in memory. A column of bytes is read
    /// only if it holds texts.
    ///
    /// # Errors
    /// Fails if there is no such column, or if the table is damaged.
    pub fn lines<T>(&self, columns: &[&str], of: impl Fn(Line) -> T) -> Result<Vec<T>> {
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
                    lines.push(of(Line::of_row(&self.path, lines.len(), values(row?))));
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

/// Returns the values of a row. Texts that some programs write as bytes are texts; other bytes are in base64.
fn values(row: Row) -> Value {
    let value = |(name, field): (String, Field)| {
        let text = if let Field::Bytes(bytes) = &field { std::str::from_utf8(bytes.data()).ok() } else { None };
        (name, text.map_or_else(|| field.to_json_value(), Value::from))
    };
    row.into_columns().into_iter().map(value).collect()
}

/// A column of a small table.
pub enum Column {
    /// Files of images, as the Hub stores them.
    Images(Vec<Vec<u8>>),
    Texts(Vec<String>),
    Numbers(Vec<i64>),
}

impl Column {
    fn declared(&self, name: &str) -> String {
        match self {
            Column::Images(_) => {
                format!("optional group {name} {{ optional binary bytes; optional binary path (UTF8); }}")
            }
            Column::Texts(_) => format!("optional binary {name} (UTF8);"),
            Column::Numbers(_) => format!("optional int64 {name};"),
        }
    }
}

/// Writes a table of named columns of the same length.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, columns: &[(&str, Column)]) -> Result<()> {
    let declared: Vec<String> = columns.iter().map(|(name, column)| column.declared(name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message schema {{ {} }}", declared.join(" ")))?);
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default())?;
    let mut group = writer.next_row_group()?;
    for (_, column) in columns {
        match column {
            Column::Images(files) => {
                let files: Vec<ByteArray> = files.iter().map(|file| file.clone().into()).collect();
                write_leaf::<ByteArrayType>(&mut group, &files, 2)?;
                // The paths are null.
                let mut leaf = group.next_column()?.context("a column too few")?;
                leaf.typed::<ByteArrayType>().write_batch(&[], Some(&vec![1; files.len()]), None)?;
                leaf.close()?;
            }
            Column::Texts(texts) => {
                let texts: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
                write_leaf::<ByteArrayType>(&mut group, &texts, 1)?;
            }
            Column::Numbers(numbers) => write_leaf::<Int64Type>(&mut group, numbers, 1)?,
        }
    }
    group.close()?;
    writer.close()?;
    put(path, bytes)
}

/// Writes the next leaf, whose values are all there.
fn write_leaf<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[T::T],
    level: i16,
) -> Result<()> {
    let mut leaf = group.next_column()?.context("a column too few")?;
    leaf.typed::<T>().write_batch(values, Some(&vec![level; values.len()]), None)?;
    Ok(leaf.close()?)
}
