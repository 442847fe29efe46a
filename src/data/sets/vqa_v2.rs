//! VQA v2 (Goyal et al. 2017, arXiv 1612.00837): questions about images of COCO, each answered by ten people. Results are
//! on the validation set, since the test sets have no public answers.

use crate::data::read::vqa::Vqa;
use crate::data::{Dataset, Entry, Medium, Published, Request, Resize, Split, SplitName};
use crate::schema::Reader;

pub static ENTRY: Entry = Entry {
    key: "vqa-v2",
    about: "VQA v2: questions about images with free answers; 443,757 to train on, 214,354 to test on",
    fetch: "questions, annotations and images of https://visualqa.org/download.html: \
            ROOT/v2_OpenEnded_mscoco_{train2014,val2014}_questions.json, ROOT/v2_mscoco_{train2014,val2014}_annotations.json, \
            ROOT/train2014/COCO_train2014_*.jpg, ROOT/val2014/COCO_val2014_*.jpg",
    read,
};

struct VqaV2(Vqa);

fn read(reader: &mut Reader) -> Box<dyn Dataset> {
    Box::new(VqaV2(Vqa::read(ENTRY.key, "v2_", reader)))
}

impl Dataset for VqaV2 {
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
        self.0.published([166_882, 57_606, 219_269], [80_541, 28_134, 105_679])
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

#[cfg(test)]
mod tests;
