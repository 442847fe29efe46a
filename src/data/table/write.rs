//! Small tables in Parquet, as the writers of small sets need them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::base::files::put;

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
