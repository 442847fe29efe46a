//! OK-VQA (Marino et al. 2019, arXiv 1906.00067): questions about images of COCO that ask for outside knowledge; five people
//! have answered each, and every answer is listed twice. The files have the form of VQA, and results are
//! on the validation set.

use crate::data::read::vqa::Vqa;
use crate::data::{Dataset, Entry, Medium, Published, Request, Resize, Split, SplitName};
use crate::schema::Reader;

pub static ENTRY: Entry = Entry {
    key: "ok-vqa",
    about: "OK-VQA: questions that ask for outside knowledge, with free answers; 9,009 to train on, 5,046 to test on",
    fetch: "questions, annotations and images of https://okvqa.allenai.org: \
            ROOT/OpenEnded_mscoco_{train2014,val2014}_questions.json, ROOT/mscoco_{train2014,val2014}_annotations.json, \
            ROOT/train2014/COCO_train2014_*.jpg, ROOT/val2014/COCO_val2014_*.jpg",
    read,
};

struct OkVqa(Vqa);

fn read(reader: &mut Reader) -> Box<dyn Dataset> {
    Box::new(OkVqa(Vqa::read(ENTRY.key, "", reader)))
}

impl Dataset for OkVqa {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.0.classes())
    }

    fn medium(&self) -> Medium {
        Medium::Questions
    }

    fn published(&self) -> Published {
        self.0.published([0, 0, 9_009], [0, 0, 5_046])
    }

    fn has_free_answers(&self) -> bool {
        self.0.is_free()
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.0.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> anyhow::Result<Split> {
        self.0.load(split, request)
    }

    fn resolved(&self) -> toml::Table {
        self.0.resolved()
    }
}
