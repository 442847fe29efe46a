//! OK-VQA (Marino et al. 2019, arXiv 1906.00067): questions about images of COCO that ask for outside knowledge; five people
//! have answered each, and every answer is listed twice. The files have the form of VQA, and results are
//! on the validation set.

use crate::data::Entry;
use crate::data::read::vqa::{Source, Vqa};
use crate::hub::originals::Originals;

static SOURCE: Source = Source { key: "ok-vqa", version: "", train: [0, 0, 9_009], test: [0, 0, 5_046], hub: None };

pub static ENTRY: Entry = Entry {
    key: SOURCE.key,
    about: "OK-VQA: questions that ask for outside knowledge, with free answers; 9,009 to train on, 5,046 to test on",
    fetch: "questions, annotations and images of https://okvqa.allenai.org: \
            ROOT/OpenEnded_mscoco_{train2014,val2014}_questions.json, ROOT/mscoco_{train2014,val2014}_annotations.json, \
            ROOT/train2014/COCO_train2014_*.jpg, ROOT/val2014/COCO_val2014_*.jpg",
    marks: &["OpenEnded_mscoco_train2014_questions.json"],
    originals: Originals::ByHand("its images are those of COCO, 20 GB in several archives"),
    hub: None,
    read: |reader| Box::new(Vqa::read(reader, &SOURCE)),
    sample: Some(|reader| Box::new(Vqa::read(reader, &SOURCE))),
};
