//! GLUE (Wang et al. 2018, arXiv 1804.07461): its tasks of classifying a sentence or a pair of sentences, and that of a number, STS-B,
//! in the published files of tab-separated values. The labels of the official test sets are not public, so `dev.tsv` is the test split.

mod tasks;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::data::lines::Line;
use crate::data::numbers::number;
use crate::data::read::columns::{self, Tsv};
use crate::data::read::json_lines::{Label, Pairs, Portion};
use crate::data::read::splits::Wanted;
use crate::data::read::tables::{Numbers, Tables};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{Choice, Reader, settings, words};
use tasks::{Layout, Task};

pub static ENTRY: Entry = Entry {
    key: "glue",
    about: "GLUE, one of its nine tasks, eight of classes and STS-B of numbers: train.tsv, and dev.tsv to test on",
    fetch: "the archives of gluebenchmark.com, unpacked: ROOT/CoLA/train.tsv, ROOT/CoLA/dev.tsv, and so on for SST-2, MRPC, \
            QQP, QNLI, RTE, WNLI and STS-B; ROOT/MNLI/train.tsv, dev_matched.tsv and dev_mismatched.tsv; MRPC as \
            download_glue_data.py makes its files",
    marks: &[],
    originals: Originals::Files {
        files: &[
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/CoLA.zip",
                376_971,
                "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
            )
            .of("task", "cola"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
                7_439_277,
                "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
            )
            .of("task", "sst2"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/QQP-clean.zip",
                41_696_084,
                "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
            )
            .of("task", "qqp"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/MNLI.zip",
                312_783_507,
                "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
            )
            .of("task", "mnli"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/QNLIv2.zip",
                10_627_589,
                "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
            )
            .of("task", "qnli"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/RTE.zip",
                697_150,
                "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
            )
            .of("task", "rte"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/WNLI.zip",
                28_999,
                "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
            )
            .of("task", "wnli"),
            Original::new(
                "https://dl.fbaipublicfiles.com/glue/data/STS-B.zip",
                802_872,
                "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
            )
            .of("task", "stsb"),
        ],
        terms: "each task has its own terms: https://gluebenchmark.com/tasks; mrpc has no archive",
    },
    hub: Some(Hub {
        repository: "nyu-mll/glue",
        config: "",
        splits: &[(SplitName::Test, "validation")],
        image: "",
        label: "label",
    }),
    read: |reader| Box::new(Glue::read(reader)),
    sample: Some(|reader| Box::new(Glue::read(reader))),
};

words! {
    /// The test sets of MNLI.
    enum Genres {
        /// The test set with texts of the same genres as the training set.
        Matched = "matched",
        /// The test set with texts of other genres.
        Mismatched = "mismatched",
    }
}

settings! {
    #[derive(Clone)]
    struct Glue {
        root: DataRoot, because "the folder that holds one folder a task";
        /// Name of the task.
        task: Task, because "the task, say \"rte\"";
        /// Test sets of the task mnli, each evaluated by itself; both by default.
        test: Vec<Genres>, unset if task == Task::Mnli { vec![Genres::Matched, Genres::Mismatched] } else { Vec::new() }, omit Vec::new();
        subset: Option<Subset>, by Subset::read;
    } then check
}

impl Glue {
    fn check(&self, reader: &Reader) {
        if !self.test.is_empty() && self.task != Task::Mnli {
            reader.problem("test", format!("is for mnli alone, and {} has one test set: leave it out", self.task));
        }
    }

    fn layout(&self) -> &'static Layout {
        self.task.layout()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.join(self.layout().folder).join(file)
    }

    /// Returns the names of the files of a split.
    fn files(&self, split: SplitName) -> Result<Vec<String>> {
        Ok(match split {
            SplitName::Train => vec!["train.tsv".into()],
            SplitName::Test if self.task == Task::Mnli => {
                self.test.iter().map(|genres| format!("dev_{genres}.tsv")).collect()
            }
            SplitName::Test => vec!["dev.tsv".into()],
            SplitName::Val => bail!("glue has no split `val`; set data.glue.validation, say to 0.1"),
        })
    }

    /// Appends the texts and labels of the Hub's tables.
    fn add_rows(&self, tables: &Tables, samples: &mut Pairs) -> Result<()> {
        // The Hub has its own names for the texts of MNLI alone.
        let (first, second) =
            if self.task == Task::Mnli { ("premise", Some("hypothesis")) } else { self.layout().keys };
        let columns: Vec<&str> = [first].into_iter().chain(second).collect();
        for (line, label) in tables.lines(&columns)?.iter().zip(self.labels_of(tables)?) {
            let second = second.map(|column| line.text(column)).transpose()?;
            samples.push(&line.text(first)?, second.as_deref(), label);
        }
        Ok(())
    }

    /// Returns the labels of the Hub's tables.
    fn labels_of(&self, tables: &Tables) -> Result<Vec<Label>> {
        let column = ENTRY.hub()?.label;
        if self.has_numbers() {
            return tables.lines(&[column])?.iter().map(|line| line.number(column).map(Label::Number)).collect();
        }
        let classes = tables.labels(column, Numbers::Named(&self.classes()?))?;
        Ok(classes.into_iter().map(Label::Class).collect())
    }

    /// Returns the label that a cell holds; `None` if it is none of the classes.
    ///
    /// # Errors
    /// Fails if it must be a number and is none.
    fn label_in(&self, cell: &str, place: &str) -> Result<Option<Label>> {
        let layout = self.layout();
        if layout.has_numbers() {
            return number(cell, layout.label, &place).map(|number| Some(Label::Number(number)));
        }
        let class = layout.labels.iter().position(|known| *known == cell);
        Ok(class.map(|class| Label::Class(class as u32)))
    }

    /// Reads the texts and labels of one split. Several test sets are one split only for counting; each is a test set of its own in
    /// [`Dataset::test_sets`].
    fn pairs(&self, split: SplitName) -> Result<Pairs> {
        let mut samples = Pairs::default();
        for file in self.files(split)? {
            match Tables::open(&self.root, Wanted::Part(self.task.word()), &hub_name(&file))? {
                Some(tables) => self.add_rows(&tables, &mut samples)?,
                None => self.add(&file, &mut samples)?,
            }
        }
        Ok(samples)
    }

    /// Appends the texts and labels of a file.
    fn add(&self, file: &str, samples: &mut Pairs) -> Result<()> {
        let layout = self.layout();
        let path = self.path(file);
        let tsv = Tsv::read(&path, layout.header)?;
        let [first, label] = [tsv.column(layout.first)?, tsv.column(layout.label)?];
        let second = layout.second.map(|name| tsv.column(name)).transpose()?;
        let last = [Some(first), Some(label), second].into_iter().flatten().max().unwrap_or(0);
        let mut broken = 0;
        for row in &tsv.rows {
            let place = || format!("{}:{}", path.display(), row.number);
            let found = row.cells.get(label).map(|cell| self.label_in(cell, &place())).transpose()?.flatten();
            let (Some(found), true) = (found, row.cells.len() > last) else {
                if layout.has_broken_lines {
                    broken += 1;
                    continue;
                }
                let word = row.cells.get(label).map_or("missing".into(), |word| format!("`{word}`"));
                let known = if layout.has_numbers() {
                    "a number".into()
                } else {
                    format!("one of {}", layout.labels.join(", "))
                };
                bail!(
                    "{}: has {} cells, and its {} is {word}: must have more than {last}, and be {known}",
                    place(),
                    row.cells.len(),
                    layout.label
                );
            };
            samples.push(&row.cells[first], second.map(|second| row.cells[second].as_str()), found);
        }
        if broken > 0 {
            tracing::warn!("{}: {broken} broken lines left out, as by its publisher's readers", path.display());
        }
        Ok(())
    }
}

/// Returns the name on the Hub of the split in a file: `validation_matched` for dev_matched.tsv.
fn hub_name(file: &str) -> String {
    file.trim_end_matches(".tsv").replace("dev", "validation")
}

impl Dataset for Glue {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        match self.test.as_slice() {
            [genres] => format!("glue-{}-{genres}", self.task),
            _ => format!("glue-{}", self.task),
        }
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.layout().classes.iter().map(|class| class.to_string()).collect())
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn published(&self) -> Published {
        let Layout { train, dev, .. } = *self.layout();
        let dev = match self.test.as_slice() {
            [] => dev,
            chosen => {
                chosen.iter().map(|genres| if *genres == Genres::Matched { dev } else { tasks::MISMATCHED }).sum()
            }
        };
        Published::new(self.layout().classes.len(), &[(SplitName::Train, train), (SplitName::Test, dev)])
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        line.text(self.layout().keys.0)
    }

    fn second(&self, line: &Line) -> Result<Option<String>> {
        self.layout().keys.1.map(|key| line.text(key)).transpose()
    }

    fn has_numbers(&self) -> bool {
        self.layout().has_numbers()
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        self.pairs(split)?.split(Portion { set: &self.label(), split, subset: self.subset })
    }

    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        let alone = |genres: &Genres| -> (String, Box<dyn Dataset>) {
            (genres.to_string(), Box::new(Glue { test: vec![*genres], ..self.clone() }))
        };
        if self.test.len() > 1 { self.test.iter().map(alone).collect() } else { Vec::new() }
    }
}

impl SmallSet for Glue {
    /// Writes the columns of the task that are read; where the files have no header, the others too.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let layout = self.layout();
        let read: Vec<&str> = [Some(layout.first), layout.second, Some(layout.label)].into_iter().flatten().collect();
        let columns = layout.header.unwrap_or(&read);
        let cell = |i: usize, column: &str| match column {
            column if column == layout.label && layout.has_numbers() => format!("{}.25", sizes.label(i)),
            column if column == layout.label => layout.labels[sizes.label(i).min(layout.labels.len() - 1)].to_string(),
            column if column == layout.first => format!("text 1 of {i}"),
            column if layout.second == Some(column) => format!("text 2 of {i}"),
            _ => "made up".to_string(),
        };
        let row = |i: usize| columns.iter().map(|column| cell(i, column)).collect();
        for split in [SplitName::Train, SplitName::Test] {
            for file in self.files(split)? {
                let header = layout.header.is_none().then_some(columns);
                columns::write_tsv(&self.path(&file), header, (0..sizes.of(split)).map(row))?;
            }
        }
        Ok(())
    }
}
