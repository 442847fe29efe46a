//! Pages that are generated say what the binary says, and every entry of a registry is documented.

use crate::common::{bella, printed, repository};

fn page(name: &str) -> String {
    std::fs::read_to_string(repository(name)).unwrap()
}

#[test]
fn every_key_of_a_config_is_documented() {
    for key in bella::experiment::keys::all() {
        assert!(key.about.ends_with('.'), "{}: give its reader a sentence by .about(\"…\")", key.path);
        assert!(!key.rule.is_empty(), "{}", key.path);
    }
}

#[test]
fn the_page_of_keys_is_the_one_that_is_generated() {
    let generated = printed(&bella(&["list", "keys", "--markdown"]).output().unwrap());
    let hint = "write it again: bella list keys --markdown > docs/configuration.md";
    assert!(generated == page("docs/configuration.md"), "docs/configuration.md is stale; {hint}");
}

#[test]
fn keys_are_listed_by_their_beginning() {
    let text = printed(&bella(&["list", "keys", "method.svgd"]).output().unwrap());
    crate::common::assert_has(&text, &["method.svgd.gamma", "at least 0; required", "default \"own\" or \"shared\""]);
    assert!(!text.contains("method.ivon"));
    let common = printed(&bella(&["list", "keys", "data.cifar10.validation"]).output().unwrap());
    crate::common::assert_has(&common, &["data.*.validation", "at least 0 and below 1"]);
    let last = printed(&bella(&["list", "keys", "lr"]).output().unwrap());
    crate::common::assert_has(&last, &["optimizer.adamw.lr\n", "optimizer.sgd.lr\n"]);
    assert!(!last.contains("train.epochs"));
    assert_eq!(bella(&["list", "keys", "methods"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn results_page_has_the_metrics_and_measures() {
    let results = page("docs/results.md");
    for metric in bella::metrics::METRICS {
        assert!(results.contains(&format!("| `{}` | {} |", metric.key, metric.about)), "{}", metric.key);
    }
    for measure in bella::metrics::ood::OOD_MEASURES {
        assert!(results.contains(&format!("| `{}` |", measure.key)), "{}", measure.key);
    }
    for score in bella::metrics::conformal::SCORES {
        assert!(results.contains(&format!("| `{}` | {} |", score.key, score.definition)), "{}", score.key);
    }
    for entry in bella::metrics::calibrators::CALIBRATORS {
        let row = format!("| `{}` | `{}` | {} |", entry.key, entry.suffix, entry.about);
        assert!(results.contains(&row), "{}", entry.key);
    }
    for (measure, definition) in bella::metrics::conformal::measures() {
        assert!(results.contains(&format!("| `{measure}` | {definition} |")), "{measure}");
    }
    for score in bella::metrics::ood::features::FEATURE_SCORES {
        let row = format!("| `{}` | {} | {} |", score.key, score.definition.replace('|', "\\|"), score.paper);
        assert!(results.contains(&row), "{}", score.key);
    }
    for score in bella::metrics::ood::OOD_SCORES {
        assert!(results.contains(&format!("| `{}` | {}", score.key, score.definition)), "{}", score.key);
    }
}

#[test]
fn every_format_of_exports_has_its_row() {
    let exchange = page("docs/exchange.md");
    for format in bella::exchange::formats::FORMATS {
        let row = format!("| `bella export RUN --to {} --output FOLDER` | ", format.key);
        assert!(exchange.contains(&row), "docs/exchange.md has no row for {}", format.key);
    }
}

#[test]
fn pages_name_every_entry() {
    let methods = page("docs/methods.md");
    for key in bella::methods::METHODS.iter().map(|e| e.key).chain(bella::optimizers::OPTIMIZERS.iter().map(|e| e.key))
    {
        assert!(methods.contains(&format!("`{key}`")), "docs/methods.md lacks {key}");
    }
    let attacks = page("docs/attacks.md");
    for entry in bella::evaluate::attacks::ATTACKS {
        assert!(attacks.contains(&format!("| `{}` | ", entry.key)), "docs/attacks.md lacks {}", entry.key);
    }
    let data = page("docs/data.md");
    for entry in bella::data::DATASETS {
        assert!(data.contains(&format!("`{}`", entry.key)), "docs/data.md lacks {}", entry.key);
    }
}

#[test]
fn the_readme_fits_a_page_and_its_links_lead_somewhere() {
    let readme = page("README.md");
    assert!(readme.lines().count() <= 150);
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/data.md",
        "docs/networks.md",
        "docs/methods.md",
        "docs/post-hoc.md",
        "docs/attacks.md",
        "docs/results.md",
        "docs/exchange.md",
        "docs/clusters.md",
        "docs/watching.md",
        "docs/terminal.md",
        "docs/comparison.md",
        "docs/internals.md",
        "docs/questions.md",
        "docs/recipes.md",
    ] {
        let folder = std::path::Path::new(name).parent().unwrap();
        for link in page(name).split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap().to_string()) {
            if !link.contains("://") && !link.is_empty() {
                let path = repository(&folder.join(&link).to_string_lossy());
                assert!(path.exists(), "{name}: {link}");
            }
        }
    }
}

/// A file that a page or a guide names exists, so that moving a file mends the pages as well.
#[test]
fn source_files_that_pages_name_exist() {
    for name in ["docs/internals.md", "docs/data.md", "docs/networks.md", "CONTRIBUTING.md"] {
        let text = page(name);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
        let paths =
            words.filter(|word| (word.starts_with("src/") || word.starts_with("tests/")) && word.ends_with(".rs"));
        // A section that begins with a file has it for an example of what there could be, in a folder that there is.
        let sections = text.split("\n### ").skip(1).filter_map(|section| section.split_once("\n\n"));
        let examples: Vec<&str> = sections.filter_map(|(_, body)| body.strip_prefix('`')?.split('`').next()).collect();
        let could_be = |path: &str| {
            let folder = std::path::Path::new(path).parent().map(|folder| repository(&folder.to_string_lossy()));
            examples.contains(&path) && folder.is_some_and(|folder| folder.is_dir())
        };
        let missing = paths.filter(|path| !could_be(path) && !repository(path).is_file());
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "{name}");
    }
}
