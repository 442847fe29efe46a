//! VQA v2 (Goyal et al. 2017, arXiv 1612.00837): questions about images of COCO, each answered by ten people. Results are
//! on the validation set, since the test sets have no public answers.

use crate::data::Entry;
use crate::data::read::vqa::{Source, Vqa};
use crate::hub::originals::Originals;

static SOURCE: Source =
    Source { key: "vqa-v2", version: "v2_", train: [166_882, 57_606, 219_269], test: [80_541, 28_134, 105_679] };

pub static ENTRY: Entry = Entry {
    key: SOURCE.key,
    about: "VQA v2: questions about images with free answers; 443,757 to train on, 214,354 to test on",
    fetch: "questions, annotations and images of https://visualqa.org/download.html: \
            ROOT/v2_OpenEnded_mscoco_{train2014,val2014}_questions.json, ROOT/v2_mscoco_{train2014,val2014}_annotations.json, \
            ROOT/train2014/COCO_train2014_*.jpg, ROOT/val2014/COCO_val2014_*.jpg",
    originals: Originals::ByHand("its images are those of COCO, 20 GB in several archives"),
    read: |reader| Box::new(Vqa::read(reader, &SOURCE)),
    sample: Some(|reader| Box::new(Vqa::read(reader, &SOURCE))),
};

#[cfg(test)]
mod tests;
