//! The configurations that the card of a repository (`README.md`) names.

/// The ending of tables.
pub const ENDING: &str = ".parquet";

/// A configuration of a card: its name, and the patterns of the files of each split.
#[derive(Debug, Default, PartialEq)]
pub struct Config {
    pub name: String,
    pub is_default: bool,
    pub files: Vec<(String, Vec<String>)>,
}

/// Reads the entry `configs` of the metadata at the top of a card. It is YAML, of which only the forms that the Hub writes are
/// understood: `- config_name: x`, below it `data_files:` with `- split: s` and `path: p` or a list of paths.
pub fn configs(card: &str) -> Vec<Config> {
    let mut configs: Vec<Config> = Vec::new();
    let mut is_inside = false;
    let head = card.strip_prefix("---").unwrap_or_default();
    for line in head.lines().take_while(|line| line.trim_end() != "---") {
        let (is_top, text) = (!line.starts_with([' ', '-']) && !line.is_empty(), line.trim());
        if is_top {
            is_inside = text == "configs:";
            continue;
        }
        let item = text.strip_prefix("- ").map(str::trim);
        let (key, value) = item.unwrap_or(text).split_once(':').unwrap_or((item.unwrap_or(text), ""));
        let value = value.trim().trim_matches(['"', '\'']);
        match (key, configs.last_mut()) {
            _ if !is_inside => {}
            ("config_name", _) => configs.push(Config { name: value.to_string(), ..Config::default() }),
            ("default", Some(config)) => config.is_default = value == "true",
            ("split", Some(config)) => config.files.push((value.to_string(), Vec::new())),
            ("path", Some(Config { files, .. })) if !value.is_empty() => {
                files.last_mut().into_iter().for_each(|(_, paths)| paths.push(value.to_string()));
            }
            (path, Some(Config { files, .. })) if item.is_some() && path.contains(ENDING) || path.contains('*') => {
                let path = path.trim_matches(['"', '\'']);
                files.last_mut().into_iter().for_each(|(_, paths)| paths.push(path.to_string()));
            }
            _ => {}
        }
    }
    configs.retain(|config| !config.files.is_empty());
    configs
}
