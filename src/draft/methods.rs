//! The methods that a first config may have: the files of `configs/methods`, with what depends on the number of images
//! computed anew.

use anyhow::{Context, Result};

/// A file of `configs/methods`.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    text: &'static str,
}

macro_rules! recipes {
    ($($name:literal),+ $(,)?) => {
        &[$(Recipe { name: $name, text: include_str!(concat!("../../configs/methods/", $name, ".toml")) }),+]
    };
}

/// The methods, the usual first choice first. The files that are missing here repeat a row of a paper on its own data set,
/// or train nothing.
pub const METHODS: &[Recipe] = recipes![
    "bella-svgd",
    "bella-ensemble",
    "lora-ensemble",
    "batch-ensemble",
    "lora",
    "vbl",
    "ivon",
    "multi-ivon",
    "swag",
    "multi-swag",
    "mc-dropout",
    "tfb",
    "sam",
    "sa-svgd",
    "fhbi",
    "f-svgd",
    "repulsive-ensemble",
    "forde",
    "bbb",
    "vogn",
    "blob",
    "scalabl",
    "vbll",
    "sngp",
    "sgld",
    "psgld",
    "sghmc",
    "mile",
    "smile",
    "ibdr",
    "bayestune",
    "single",
    "ensemble",
    "svgd",
];

/// The sizes that settings of a method depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// The number of training images.
    pub images: usize,
    pub classes: usize,
    pub batch_size: usize,
    /// The number of steps of the whole training.
    pub steps: usize,
}

/// The tables of a method as text.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The first sentence of the file's header.
    pub about: String,
    /// `[head.*]`, if the method needs one of its own.
    pub head: Option<String>,
    /// `[subspace.*]`, `[method.*]` and `[optimizer.*]`.
    pub tables: String,
    /// The lines of `[train]` that the method needs.
    pub train: String,
    /// Whether the method has phases, or collects states of training, so that it must not end early.
    pub has_phases: bool,
}

impl Recipe {
    pub fn named(name: &str) -> Option<&'static Recipe> {
        METHODS.iter().find(|recipe| recipe.name == name)
    }

    /// Returns the first sentence of the file's header, without what stands in brackets.
    pub fn about(&self) -> String {
        let header = self.text.lines().take_while(|line| line.starts_with('#'));
        let words: Vec<&str> = header.map(|line| line.trim_start_matches('#').trim()).collect();
        let text = without_brackets(&words.join(" "));
        let end = text.find(" Use: ").unwrap_or(text.len());
        let end = text[..end].find(". ").unwrap_or(end);
        text[..end].trim_end_matches('.').to_string()
    }

    /// Returns the tables with the values that fit the sizes, and `low_rank` for the table of the low-rank subspace.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    pub fn tables(&self, sizes: Sizes, low_rank: &str) -> Result<Tables> {
        let content: toml::Table = self.text.parse().with_context(|| format!("configs/methods/{}.toml", self.name))?;
        let method = content.get("method").and_then(toml::Value::as_table);
        let settings = method.and_then(|method| method.values().next()).and_then(toml::Value::as_table);
        let has = |key: &str| settings.is_some_and(|settings| settings.contains_key(key));
        let has_phases = has("every") || has("cycle") || has("search_steps");
        let fitted = fitted(settings.unwrap_or(&toml::Table::new()), sizes);
        let mut tables = Tables { about: self.about(), has_phases, ..Tables::default() };
        let mut section = "";
        for line in self.text.lines().skip_while(|line| !line.starts_with('[')) {
            section = if line.starts_with('[') { line } else { section };
            match section {
                "[train]" if line != section => tables.train += &format!("{line}\n"),
                "[train]" => {}
                _ if section.starts_with("[head.") => *tables.head.get_or_insert_default() += &format!("{line}\n"),
                _ if line.starts_with("[subspace.low-rank]") => tables.tables += low_rank,
                "[subspace.rank-one]" if line == section => tables.tables += &rank_one(low_rank)?,
                // The layers are those of the network, not those of the file.
                "[subspace.rank-one]" => {}
                _ => tables.tables += &format!("{}\n", replaced(line, &fitted)),
            }
        }
        if !content.contains_key("optimizer") {
            tables.tables += "\n[optimizer.adamw]\nlr = 1e-3 # try 1e-4 to 3e-3: bella sweep\nweight_decay = 0.1\n";
        }
        tables.tables = tables.tables.trim_end().to_string() + "\n";
        tables.head = tables.head.map(|head| head.trim_end().to_string() + "\n");
        Ok(tables)
    }
}

/// Returns the table of factors of the layers that `low_rank` adapts.
fn rank_one(low_rank: &str) -> Result<String> {
    let targets = low_rank.lines().find(|line| line.starts_with("targets = "));
    let targets = targets
        .context("batch-ensemble: the network has no linear layers whose inputs and outputs could get factors")?;
    Ok(format!("[subspace.rank-one]\n{targets}\n\n"))
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0;
    let mut kept = String::new();
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            letter if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept.replace(" :", ":").replace(" ,", ",").replace(" .", ".").replace("  ", " ")
}

/// A key of a method with the value that fits, and what it is computed from.
struct Fitted {
    key: &'static str,
    value: usize,
    why: &'static str,
}

/// Returns the settings that depend on the sizes, among those that the method has.
fn fitted(settings: &toml::Table, sizes: Sizes) -> Vec<Fitted> {
    let number = |key: &str| settings.get(key).and_then(toml::Value::as_integer).map(|value| value as usize);
    let Sizes { images, classes, batch_size, steps } = sizes;
    let start = if number("start") == Some(0) { 0 } else { steps * 5 / 7 };
    let explores = settings.contains_key("exploration");
    // Snapshots and states come from the end of training, or of each of two cycles.
    let room = if explores { steps / 10 } else { steps - start };
    let kept = number("columns").or(number("samples")).unwrap_or(20) / if explores { 2 } else { 1 };
    let cycle = match explores {
        true => steps / 2,
        // The length in the release of BLoB's authors.
        false => (100.0 * (images as f64).powf(std::f64::consts::PI / 8.0) / batch_size as f64) as usize,
    };
    let tuning = (steps / 7).max(4);
    let all = [
        Fitted { key: "ess", value: images, why: "the number of training images" },
        Fitted { key: "start", value: start, why: "a step of training" },
        Fitted { key: "every", value: (room / kept.max(1)).max(1), why: "in steps" },
        Fitted { key: "cycle", value: cycle.max(1), why: "in steps" },
        Fitted {
            key: "fit_steps",
            value: start.saturating_sub(tuning),
            why: "the optimizer's steps before the chain's",
        },
        Fitted { key: "tune_steps", value: tuning, why: "steps after those" },
        Fitted { key: "search_steps", value: (steps / 10).max(1), why: "a tenth of all steps" },
        Fitted { key: "particles", value: number("particles").unwrap_or(1).min(most(settings, classes)), why: "" },
    ];
    all.into_iter().filter(|one| settings.contains_key(one.key)).collect()
}

/// Returns the most particles that a method can have: IBDR needs more classes than particles.
fn most(settings: &toml::Table, classes: usize) -> usize {
    if settings.contains_key("ascent_lr") { classes.saturating_sub(1).max(1) } else { usize::MAX }
}

/// Returns a line of a table with the value that fits.
fn replaced(line: &str, fitted: &[Fitted]) -> String {
    let one = line.split_once(" = ").and_then(|(key, _)| fitted.iter().find(|one| one.key == key));
    match one {
        Some(Fitted { key, value, why: "" }) => format!("{key} = {value}"),
        Some(Fitted { key, value, why }) => format!("{key} = {value} # {why}"),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { images: 1000, classes: 3, batch_size: 50, steps: 700 };

    const LOW_RANK: &str = "[subspace.low-rank]\nrank = 4\ntargets = [\"attn.q\"]\n";

    fn tables(name: &str) -> Tables {
        Recipe::named(name).unwrap().tables(SIZES, LOW_RANK).unwrap()
    }

    #[test]
    fn every_method_file_is_a_recipe_or_left_out_on_purpose() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/methods");
        let left_out = ["ivon-full", "ivon-full-imagenet", "single-sgd", "bella-svgd-weight", "bayesvlm"];
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
            assert!(Recipe::named(&name).is_some() != left_out.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn settings_fit_the_images() {
        assert!(tables("ivon").tables.contains("ess = 1000 # the number of training images\n"));
        let swag = tables("swag");
        assert!(swag.tables.contains("start = 500 #") && swag.tables.contains("every = 10 #"), "{}", swag.tables);
        assert_eq!(swag.train, "schedule = \"constant\"\n");
        let sghmc = tables("sghmc").tables;
        assert!(sghmc.contains("cycle = 350 #") && sghmc.contains("every = 7 #") && sghmc.contains("start = 0 #"));
        assert!(tables("ibdr").tables.contains("particles = 2\n"), "three classes");
        assert!(tables("bella-svgd").tables.contains("particles = 5\n"));
        assert_eq!(tables("vbll").head.unwrap(), "[head.linear]\n");
        // 100 · 1000^(π/8) / 50 = 30.1
        assert!(tables("blob").tables.contains("cycle = 30 #"), "{}", tables("blob").tables);
        let factors = tables("batch-ensemble").tables;
        assert!(factors.starts_with("[subspace.rank-one]\ntargets = [\"attn.q\"]\n\n[method.ensemble]\n"), "{factors}");
        let none = Recipe::named("batch-ensemble").unwrap().tables(SIZES, "[subspace.full]\n").unwrap_err();
        assert!(none.to_string().contains("no linear layers"));
        assert_eq!(tables("bella-svgd").about, "SVGD Bella: five low-rank particles that repel each other");
        assert_eq!(tables("ensemble").about, "Ensemble base: five particles, every weight of the image tower each");
    }
}
