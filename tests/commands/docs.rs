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

/// Every page and guide.
fn pages() -> Vec<String> {
    let docs = std::fs::read_dir(repository("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let docs = docs.map(|name| format!("docs/{}", name.to_string_lossy())).filter(|name| name.ends_with(".md"));
    docs.chain(["README.md", "CONTRIBUTING.md"].map(String::from)).collect()
}

/// A file or folder of the source tree that a page or a guide names exists, so that moving a file mends the pages as well.
#[test]
fn files_that_pages_name_exist() {
    for name in pages() {
        let text = page(&name);
        // The start of several names, such as `scripts/compare_*.py`, ends in front of the star.
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-*".contains(c)));
        let paths = words.map(|word| word.trim_end_matches('.')).filter(|word| {
            let folders = ["src/", "tests/", "scripts/", "configs/", "docs/", "assets/"];
            folders.iter().any(|folder| word.starts_with(folder)) && !word.contains('*')
        });
        // A section that begins with a file has it for an example of what there could be, in a folder that there is.
        let sections = text.split("\n### ").skip(1).filter_map(|section| section.split_once("\n\n"));
        let examples: Vec<&str> = sections.filter_map(|(_, body)| body.strip_prefix('`')?.split('`').next()).collect();
        let could_be = |path: &str| {
            let folder = std::path::Path::new(path).parent().map(|folder| repository(&folder.to_string_lossy()));
            examples.contains(&path) && folder.is_some_and(|folder| folder.is_dir())
        };
        let missing = paths.filter(|path| !could_be(path) && !repository(path).exists());
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "{name}");
    }
}

/// The rows of the first table below a heading of a page, as cells.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let below = page.split_once(heading).unwrap_or_else(|| panic!("no {heading}")).1;
    let lines = below.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    lines.skip(2).map(cells).collect()
}

/// The words of a cell that stand as code.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_path_through_training_has_the_files_that_it_counts() {
    let internals = page("docs/internals.md");
    let mut all = 0;
    for row in rows(&internals, "## A path through `bella train`") {
        let mut files = Vec::new();
        for part in row[1].split(';') {
            let folder =
                part.trim().strip_prefix('`').and_then(|part| part.split_once("`: ")).map_or("", |(folder, _)| folder);
            files.extend(
                code(part).into_iter().filter(|word| word.ends_with(".rs")).map(|file| format!("src/{folder}{file}")),
            );
        }
        let missing: Vec<&String> = files.iter().filter(|file| !repository(file).is_file()).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", row[0]);
        assert_eq!(files.len().to_string(), row[2], "{}", row[0]);
        all += files.len();
    }
    assert!(internals.contains(&format!("These are {all} files.")), "{all} files");
}

#[test]
fn the_floor_plan_of_the_page_is_that_of_the_library() {
    let library = page("src/lib.rs");
    let modules: Vec<&str> =
        library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let mut next = 0;
    let internals = page("docs/internals.md");
    for row in rows(&internals, "## The floor plan") {
        let mut named = code(&row[2]);
        let mut own = modules[next..modules.len().min(next + named.len())].to_vec();
        next += named.len();
        named.sort_unstable();
        own.sort_unstable();
        assert_eq!(named, own, "{}: the modules of src/lib.rs in their order", row[0]);
    }
    assert_eq!(next, modules.len());
}
