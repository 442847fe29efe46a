//! VQA v2 (Goyal et al. 2017, arXiv 1612.00837): questions about images of COCO, each answered by ten people. Results are
//! on the validation set, since the test sets have no public answers.

use crate::data::read::vqa::{Source, Vqa};
use crate::data::{Entry, Hub, SplitName};
use crate::hub::originals::Originals;

static SOURCE: Source = Source {
    key: "vqa-v2",
    version: "v2_",
    train: [166_882, 57_606, 219_269],
    test: [80_541, 28_134, 105_679],
    // This repository has no training questions; tables with these columns that have them are read, too.
    hub: Some(Hub {
        repository: "lmms-lab/VQAv2",
        config: "default",
        splits: &[(SplitName::Test, "validation")],
        image: "image",
        label: "multiple_choice_answer",
    }),
};

pub static ENTRY: Entry = Entry {
    key: SOURCE.key,
    about: "VQA v2: questions about images with free answers; 443,757 to train on, 214,354 to test on",
    fetch: "questions, annotations and images of https://visualqa.org/download.html: \
            ROOT/v2_OpenEnded_mscoco_{train2014,val2014}_questions.json, ROOT/v2_mscoco_{train2014,val2014}_annotations.json, \
            ROOT/train2014/COCO_train2014_*.jpg, ROOT/val2014/COCO_val2014_*.jpg",
    marks: &["v2_OpenEnded_mscoco_train2014_questions.json"],
    originals: Originals::ByHand("its images are those of COCO, 20 GB in several archives"),
    hub: SOURCE.hub,
    read: |reader| Box::new(Vqa::read(reader, &SOURCE)),
    sample: Some(|reader| Box::new(Vqa::read(reader, &SOURCE))),
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{REQUEST, error, fixture, load, mistakes, put, set, write};
    use crate::data::{Inputs, Published, Questions, Request, Split};

    /// Three questions about two images, in the form of the published files.
    fn put_files(root: &Path, part: &str) {
        let questions = r#"{"data_subtype": "PART", "questions": [
        {"image_id": 42, "question": "Is it red?", "question_id": 420},
        {"image_id": 7, "question": "How many?", "question_id": 71},
        {"image_id": 42, "question": "What is it?", "question_id": 421}]}"#;
        let answers = |words: [&str; 3]| {
            let all = words.iter().enumerate().map(|(i, word)| format!(r#"{{"answer": "{word}", "answer_id": {i}}}"#));
            format!("[{}]", all.collect::<Vec<_>>().join(", "))
        };
        let one = |id: u32, kind: &str, more: &str, words| {
            format!(r#"{{"question_id": {id}, "answer_type": "{kind}", {more} "answers": {}}}"#, answers(words))
        };
        let all = [
            one(71, "number", "", ["3", "two", "two"]),
            one(420, "yes/no", r#""multiple_choice_answer": "yes", "#, ["no", "yes", "yes"]),
            one(421, "other", "", ["cat", "dog", "cow"]),
        ];
        let annotations = format!(r#"{{"data_subtype": "PART", "annotations": [{}]}}"#, all.join(", "));
        write(root, &format!("v2_OpenEnded_mscoco_{part}_questions.json"), &questions.replace("PART", part));
        write(root, &format!("v2_mscoco_{part}_annotations.json"), &annotations.replace("PART", part));
        for (image, gray) in [(42, 10), (7, 200)] {
            put(root, &format!("{part}/COCO_{part}_{image:012}.jpg"), gray);
        }
    }

    fn questions(split: &Split) -> &Questions {
        let Inputs::Questions(questions) = &split.inputs else { panic!("questions") };
        questions
    }

    fn gray(questions: &Questions, image: usize) -> u8 {
        Inputs::from(questions.images.clone()).image(image).unwrap()[0]
    }

    #[test]
    fn questions_have_their_images_answers_and_types() {
        let folder = tempfile::tempdir().unwrap();
        put_files(folder.path(), "val2014");
        let split = load(&*set(&ENTRY, folder.path(), ""), SplitName::Test).unwrap();
        let found = questions(&split);
        assert_eq!((split.name.as_str(), split.labels.as_slice()), ("vqa-v2/test", &[0, 1, 2][..]));
        assert_eq!(found.answers.iter().map(|one| one.target.as_str()).collect::<Vec<_>>(), ["yes", "two", "cat"]);
        assert_eq!(found.answers.iter().map(|one| one.question).collect::<Vec<_>>(), [420, 71, 421]);
        assert_eq!((found.answers[1].people.join(" ").as_str(), &found.image_of[..]), ("3 two two", &[1, 0, 1][..]));
        assert!(found.prompts[0].ends_with(
            "questions. USER: <image>\nIs it red?\nAnswer the question using a single word or phrase. ASSISTANT:"
        ));
        assert_eq!(gray(found, 0), 200);
        let in_memory = Request { memory_bytes: 1 << 20, ..REQUEST };
        let packed = set(&ENTRY, folder.path(), "").load(SplitName::Test, &in_memory).unwrap();
        assert_eq!(gray(questions(&packed), 1), 10);
        // Questions are another number than images, also where these are in memory.
        for split in [&packed, &split] {
            let image = questions(split).image_of[2] as usize;
            assert_eq!(split.sample_name(2), split.files().unwrap().paths[image]);
            let last = split.select(&[2]);
            assert_eq!(
                (last.sample_name(0), &questions(&last).image_of[..]),
                (split.sample_name(2), &[image as u32][..])
            );
        }
    }

    /// The tables have the questions of the files above; scripts/make_parquet_fixtures.py wrote them by the package `datasets`.
    #[test]
    fn the_tables_of_the_hub_have_the_same_questions() {
        let (folder, hub) = (tempfile::tempdir().unwrap(), fixture("parquet/hub/vqa-v2"));
        for (split, part) in [(SplitName::Train, "train2014"), (SplitName::Test, "val2014")] {
            put_files(folder.path(), part);
            let (rows, files) = (set(&ENTRY, &hub, ""), set(&ENTRY, folder.path(), ""));
            let (rows, files) = (load(&*rows, split).unwrap(), load(&*files, split).unwrap());
            let (found, wanted) = (questions(&rows), questions(&files));
            assert_eq!(
                (&found.prompts, &found.answers, &rows.labels),
                (&wanted.prompts, &wanted.answers, &files.labels)
            );
            assert_eq!((&found.image_of, gray(found, 0), gray(found, 1)), (&wanted.image_of, 200, 10));
        }
        let part = load(&*set(&ENTRY, &hub, "answer_types = [\"number\"]"), SplitName::Test).unwrap();
        let found = questions(&part);
        assert_eq!((found.answers[0].target.as_str(), &found.image_of[..], gray(found, 0)), ("two", &[0][..], 200));
        // The repository itself has no training questions.
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let table = "data/validation-00000-of-00001.parquet";
        std::fs::copy(hub.join(table), folder.path().join(table)).unwrap();
        let missing = error(&*set(&ENTRY, folder.path(), ""), SplitName::Train);
        assert!(missing.contains("has no table of the split `train`; its splits: validation"), "{missing}");
    }

    #[test]
    fn types_and_subsets_choose_questions() {
        let folder = tempfile::tempdir().unwrap();
        put_files(folder.path(), "train2014");
        let some = set(&ENTRY, folder.path(), "answer_types = [\"number\", \"other\"]\nsubset = 1");
        let split = load(&*some, SplitName::Train).unwrap();
        assert_eq!((split.labels.as_slice(), questions(&split).answers[0].question), (&[1][..], 71));
        assert_eq!(some.published().images_of(SplitName::Test), Some(28_134 + 105_679));
    }

    #[test]
    fn answers_can_be_classes() {
        let folder = tempfile::tempdir().unwrap();
        put_files(folder.path(), "train2014");
        let closed = set(&ENTRY, folder.path(), "labels = [\"cat\", \"yes\"]");
        let split = load(&*closed, SplitName::Train).unwrap();
        assert_eq!((split.labels.as_slice(), closed.has_free_answers()), (&[1, 0][..], false));
        assert_eq!(
            (closed.classes().unwrap(), closed.published()),
            (vec!["cat".into(), "yes".into()], Published::default())
        );
        assert!(mistakes(&ENTRY, "labels = [\"yes\"]").contains("must be two answers or more"));
        assert!(mistakes(&ENTRY, "labels = [\"yes\", \"yes\"]").contains("must be different answers"));
    }

    #[test]
    fn files_that_do_not_fit_each_other_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let vqa = set(&ENTRY, folder.path(), "");
        assert!(error(&*vqa, SplitName::Test).contains("v2_mscoco_val2014_annotations.json: cannot open"));
        put_files(folder.path(), "train2014");
        put_files(folder.path(), "val2014");
        let at = |name: &str| folder.path().join(name);
        let (train, test) = (at("v2_mscoco_train2014_annotations.json"), at("v2_mscoco_val2014_annotations.json"));
        std::fs::copy(&train, &test).unwrap();
        assert!(error(&*vqa, SplitName::Test).contains("data_subtype = \"train2014\": must be \"val2014\""));
        let text = std::fs::read_to_string(&train).unwrap();
        std::fs::write(&test, text.replace("train2014", "val2014").replace("420", "999")).unwrap();
        assert!(error(&*vqa, SplitName::Test).contains("has no answers to question 420"));
        std::fs::write(&test, text.replace("train2014", "val2014").replace("yes/no", "yes")).unwrap();
        assert!(error(&*vqa, SplitName::Test).contains("answer_type = \"yes\" is none of yes/no, number, other"));
        std::fs::remove_file(at("train2014/COCO_train2014_000000000007.jpg")).unwrap();
        assert!(error(&*vqa, SplitName::Train).contains("1 of 2 listed files cannot be used"));
        assert!(error(&*vqa, SplitName::Val).contains("data.vqa-v2.validation"));
    }

    #[test]
    fn prompts_need_one_image_and_one_question() {
        assert!(mistakes(&ENTRY, "prompt = \"{question}\"").contains("must have `<image>` once"));
        assert!(mistakes(&ENTRY, "prompt = \"<image> <image> {question}\"").contains("must have `<image>` once"));
        assert!(mistakes(&ENTRY, "answer_types = [\"colour\"]").contains("`colour` is no type of answers"));
    }
}
