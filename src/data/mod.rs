//! Data sets: images as bytes, labels, official splits, groups and class names. Nothing here depends on models.
//!
//! [`sets`] has one file for each data set, and [`read`] has the formats that several of them share.

mod asked;
pub mod augment;
pub mod batches;
mod cache;
pub mod check;
mod contents;
pub mod corruptions;
mod dataset;
mod decode;
pub mod fields;
mod fingerprint;
mod images;
mod inputs;
pub mod labels;
pub mod lines;
pub mod mix;
pub mod numbers;
pub mod order;
pub mod overlap;
pub mod read;
mod request;
mod resize;
pub mod sets;
pub mod small;
mod split;
pub mod stored;
pub mod stream;
pub mod subset;
pub mod table;
#[cfg(test)]
mod testing;
mod texts;
pub mod versions;

pub use asked::Text;
pub use augment::Augment;
pub use contents::{contents, listed};
pub use dataset::{Dataset, Entry, Hub, Published};
pub use decode::{Decode, Resize};
pub use fields::Fields;
pub use fingerprint::Fingerprint;
pub use images::{Files, Images, Packed};
pub use inputs::{Inputs, Medium};
pub use request::Request;
pub use resize::{Centre, Interpolation, Pixels, resize_pixels};
pub use sets::{DATASETS, entry};
pub use small::{Sizes, SmallSet};
pub use split::{Corrupt, Groups, Split, SplitName};
pub use subset::Subset;
pub use texts::{Answers, Learnt, Prompts, Questions, Spelled, Texts, Tokens};
pub use versions::Version;
