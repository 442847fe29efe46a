//! The tables of the configuration that the card of a repository names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::card::{Config, Files, configs};
use super::names::{DEFAULT, ENDING, USUAL, Wanted, ambiguous, of_names};
use super::place::{Place, joined};
use crate::base::files::read_text;

/// The ways out where a card is not understood, or names other tables than there are.
const WAY_OUT: &str = "fetch what it names, mend it, or take `configs` out of it, and names of files say the splits";

/// The files of a data set with its card.
pub struct Described<'a> {
    pub place: &'a Place,
    pub card: &'a Path,
    /// Whether files of the data set may not be here that nobody has asked for, as in the Hub's cache.
    pub is_partial: bool,
}

impl Described<'_> {
    /// Returns the tables that the card names, by split; `None` if there is no card, if it names no configuration, or if nothing is here of that
    /// of a published set, whose original files may lie here.
    ///
    /// # Errors
    /// Fails if the card is not understood, does not have the configuration, or names a table that is not there.
    pub fn tables(&self, config: Wanted) -> Result<Option<BTreeMap<String, Vec<String>>>> {
        let shown = self.card.display();
        if !self.card.is_file() {
            return Ok(None);
        }
        let text = read_text(self.card).with_context(|| format!("{shown}: cannot read"))?;
        let configs = configs(&text).map_err(|error| anyhow::anyhow!("{shown}: {error:#}: {WAY_OUT}"))?;
        if configs.is_empty() {
            return Ok(None);
        }
        let chosen = self.chosen(&configs, config)?;
        let found = self.found(chosen)?;
        let is_empty = found.iter().all(|found| found.tables.is_empty());
        if is_empty && matches!(config, Wanted::Published(_) | Wanted::Part(_)) {
            return Ok(None);
        }
        // The data set is of another format.
        if is_empty && found.iter().any(|found| found.has_others) {
            return Ok(Some(BTreeMap::new()));
        }
        let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for one in found {
            ensure!(
                !one.tables.is_empty() || (self.is_partial && !is_empty),
                "{shown}: the configuration `{}`: no table (.parquet) here is {}: {WAY_OUT}",
                chosen.name,
                one.sought
            );
            for table in one.tables {
                let of_split = tables.entry(one.split.clone()).or_default();
                ensure!(
                    !of_split.contains(&table),
                    "{shown}: the configuration `{}`: two patterns of `{}` fit {table}: take one of them out",
                    chosen.name,
                    one.split
                );
                of_split.push(table);
            }
        }
        Ok(Some(tables))
    }

    /// Returns the configuration that is wanted.
    fn chosen<'c>(&self, configs: &'c [Config], config: Wanted) -> Result<&'c Config> {
        let named = |name: &str| configs.iter().find(|one| one.name == name);
        let only = || configs.first().filter(|_| configs.len() == 1);
        let defaults: Vec<&Config> = configs.iter().filter(|one| one.is_default || one.name == DEFAULT).collect();
        let chosen = match config {
            Wanted::Named(name) => named(name),
            Wanted::Published(name) => named(name).or_else(only),
            Wanted::Part(name) => named(name).or_else(|| only().filter(|one| one.name == DEFAULT)),
            Wanted::Only => only().or(defaults.first().copied().filter(|_| defaults.len() == 1)),
        };
        let names: Vec<&str> = configs.iter().map(|one| one.name.as_str()).collect();
        match (chosen, config) {
            (Some(chosen), _) => Ok(chosen),
            (None, Wanted::Named(name) | Wanted::Published(name) | Wanted::Part(name)) => {
                bail!("{}: has no configuration `{name}`; known: {}", self.card.display(), names.join(", "))
            }
            (None, Wanted::Only) => bail!("{}", ambiguous(self.card, &names)),
        }
    }

    /// Returns the tables of a configuration: those that fit its patterns, or those whose names say the split.
    fn found(&self, config: &Config) -> Result<Vec<Found>> {
        let Some(files) = &config.files else { return self.by_names(config) };
        let mut found = Vec::new();
        for Files { split, patterns } in files {
            for pattern in patterns {
                let of_pattern = |error: anyhow::Error| {
                    let (shown, name) = (self.card.display(), &config.name);
                    anyhow::anyhow!("{shown}: the configuration `{name}`: {error:#}: {WAY_OUT}")
                };
                let mut tables = self.place.fitting(&joined(&config.folder, pattern)).map_err(of_pattern)?;
                let fitting = tables.len();
                tables.retain(|path| path.ends_with(ENDING));
                let sought = format!("one of the split `{split}` (path `{pattern}`)");
                let has_others = tables.len() < fitting;
                found.push(Found { split: split.clone(), sought, tables, has_others });
            }
        }
        Ok(found)
    }

    /// Returns the tables in the folder of a configuration, or else in a usual one in it.
    fn by_names(&self, config: &Config) -> Result<Vec<Found>> {
        for usual in USUAL {
            let folder = if usual.is_empty() { config.folder.clone() } else { joined(&config.folder, usual) };
            let tables = of_names(self.place, &folder)?;
            if !tables.is_empty() {
                let found = |(split, tables)| Found { split, sought: String::new(), tables, has_others: false };
                return Ok(tables.into_iter().map(found).collect());
            }
        }
        let sought = match config.folder.as_str() {
            "" => {
                "in the repository's first folder or in `data`, where those of a configuration without data_files lie"
                    .into()
            }
            folder => format!("in its folder (data_dir `{folder}`)"),
        };
        Ok(vec![Found { split: String::new(), sought, tables: Vec::new(), has_others: false }])
    }
}

/// The tables that were found in one place.
struct Found {
    split: String,
    /// The words for these tables in a message that there are none.
    sought: String,
    tables: Vec<String>,
    /// Whether files of another format lie there.
    has_others: bool,
}
