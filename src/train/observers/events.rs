//! TensorBoard's event files: records of the TFRecord format, each a message `Event` of `tensorflow/core/util/event.proto`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use prost::Message;

/// The constant of TFRecord's masked checksums.
const MASK: u32 = 0xa282_ead8;

/// `SessionLog.SessionStatus.START`.
const START: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Event {
    /// The seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// An event file that is being written.
pub struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventFile {
    /// Creates a file for the steps after `done` steps. Its second record makes TensorBoard drop what earlier files of the
    /// folder say of later steps, which are done again.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn create(path: &Path, done: usize) -> Result<EventFile> {
        let file = File::create_new(path).with_context(|| format!("{}: cannot create", path.display()))?;
        let mut file = EventFile { path: path.to_path_buf(), file: BufWriter::new(file) };
        file.add(0, What::FileVersion("brain.Event:2".into()))?;
        if done > 0 {
            file.add(done + 1, What::SessionLog(SessionLog { status: START }))?;
        }
        Ok(file)
    }

    /// Adds values of a step, each with its tag.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&mut self, step: usize, scalars: &[(String, f64)]) -> Result<()> {
        let value = |(tag, value): &(String, f64)| Value { tag: tag.clone(), simple_value: Some(*value as f32) };
        self.add(step, What::Summary(Summary { value: scalars.iter().map(value).collect() }))
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("{}: cannot write", self.path.display()))
    }

    fn add(&mut self, step: usize, what: What) -> Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall_time = since.map_or(0.0, |since| since.as_secs_f64());
        let event = Event { wall_time, step: step as i64, what: Some(what) };
        let bytes = record(&event.encode_to_vec());
        self.file.write_all(&bytes).with_context(|| format!("{}: cannot write", self.path.display()))
    }
}

/// Returns a record: the length of the content, its checksum, the content, its checksum, all little-endian.
fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), content, &masked(content).to_le_bytes()].concat()
}

/// Returns the CRC32C of bytes, rotated and shifted as TFRecord does, since a CRC of data with CRCs in it is weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes are those of TensorBoard 2.21:
    /// ```python
    /// from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    /// from tensorboard.compat.proto.summary_pb2 import Summary
    /// from tensorboard.summary.writer.record_writer import RecordWriter
    /// import io
    /// class Kept(io.BytesIO):
    ///     def close(self): pass
    /// for event in [
    ///     Event(wall_time=1.5, file_version="brain.Event:2"),
    ///     Event(wall_time=1.5, step=301, session_log=SessionLog(status=SessionLog.START)),
    ///     Event(wall_time=1.5, step=7, summary=Summary(value=[Summary.Value(tag="step/loss", simple_value=0.0)])),
    ///     Event(wall_time=1.5, step=7, summary=Summary(value=[Summary.Value(tag="a", simple_value=0.1)]))]:
    ///     file = Kept(); RecordWriter(file).write(event.SerializeToString()); print(file.getvalue().hex())
    /// ```
    #[test]
    fn records_are_those_of_tensorboard() {
        let summary = |tag: &str, value: f32| {
            What::Summary(Summary { value: vec![Value { tag: tag.into(), simple_value: Some(value) }] })
        };
        let cases = [
            (
                0,
                What::FileVersion("brain.Event:2".into()),
                "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c",
            ),
            (
                301,
                What::SessionLog(SessionLog { status: START }),
                "100000000000000095fbfe1809000000000000f83f10ad023a020801d17949d4",
            ),
            (
                7,
                summary("step/loss", 0.0),
                "1f00000000000000514b441809000000000000f83f10072a120a100a09737465702f6c6f73731500000000c9b4d3ed",
            ),
            (7, summary("a", 0.1), "1700000000000000e7cef81e09000000000000f83f10072a0a0a080a016115cdcccc3d7cebf2d5"),
        ];
        for (step, what, expected) in cases {
            let event = Event { wall_time: 1.5, step, what: Some(what) };
            assert_eq!(hex(&record(&event.encode_to_vec())), expected, "{event:?}");
        }
    }
}
