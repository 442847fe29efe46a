//! The settings of the Hub, read from the environment variables that the Hub's own Python package reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::files::read_text;
use crate::base::small::expanded;

/// The Hub itself, where no mirror is set.
const HUB: &str = "https://huggingface.co";

/// The variable that names a mirror of the servers of data sets and of OpenAI's archives.
pub const DATA_MIRROR: &str = "BELLA_DATA_MIRROR";

/// The reason for which no server is asked, with the way out.
pub const NO_NETWORK: &str = "the network may not be used (--offline or HF_HUB_OFFLINE): leave that out once";

/// Seconds without a byte after which a transfer counts as stalled.
const PATIENCE: u64 = 10;

/// Tries of a request that makes no progress.
const TRIES: u32 = 5;

/// Whether the command line forbids the network.
static OFFLINE: AtomicBool = AtomicBool::new(false);

/// Lets this process open no socket from now on.
pub fn go_offline() {
    OFFLINE.store(true, Ordering::Relaxed);
}

/// A secret that is sent to the endpoint's own host and never printed.
#[derive(Clone)]
pub struct Token(pub String);

/// The servers at which names are looked up, and the folders in which their files lie.
#[derive(Clone)]
pub struct Settings {
    /// The folder with a folder `models--org--name` for each repository.
    pub cache: PathBuf,
    /// The folder of OpenAI's archives.
    pub archives: PathBuf,
    /// The address of the Hub or its mirror, without a slash at the end.
    pub endpoint: String,
    /// The mirror of the servers of data sets, which has their files below `<host>/<path>`.
    pub data_mirror: Option<String>,
    pub token: Option<Token>,
    pub offline: bool,
    /// The time for which a connection, an answer or a byte is waited for.
    pub patience: Duration,
    /// The pause before the first repetition; each further one doubles it.
    pub pause: Duration,
    /// The tries of a request that makes no progress.
    pub tries: u32,
}

/// The place of a file that its publisher serves, not the Hub.
pub struct Published {
    pub url: String,
    /// The address of the server, or that of the mirror.
    pub endpoint: String,
}

impl Settings {
    /// Reads the environment of this process.
    pub fn of_environment() -> Settings {
        let home = std::env::home_dir().unwrap_or_default();
        Settings::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()), &home)
    }

    /// Returns where a file of a publisher's server is asked for: there, or at the mirror of such servers.
    pub fn published(&self, url: &str) -> Published {
        match &self.data_mirror {
            Some(mirror) => Published {
                url: format!("{mirror}/{}", url.split_once("://").map_or(url, |(_, rest)| rest)),
                endpoint: mirror.clone(),
            },
            None => {
                Published { url: url.to_string(), endpoint: url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/") }
            }
        }
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>, user: &Path) -> Settings {
        let path = |text: String| expanded(&text).unwrap_or_else(|_| PathBuf::from(text));
        let folder = |name: &str| variable(name).map(path);
        let caches = user.join(".cache");
        let general = folder("XDG_CACHE_HOME").unwrap_or_else(|| caches.clone());
        let home = folder("HF_HOME").unwrap_or_else(|| general.join("huggingface"));
        let cache = folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE"));
        let is_set = |name: &str| variable(name).is_some_and(|value| is_true(&value));
        let seconds = variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(PATIENCE);
        let stored = || read_text(&folder("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"))).ok();
        let named = || variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
        let token = if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") { None } else { named().or_else(stored) };
        // Of the two variables for working offline, the first that is set counts, as in the Python package.
        let offline = if variable("HF_HUB_OFFLINE").is_some() { "HF_HUB_OFFLINE" } else { "TRANSFORMERS_OFFLINE" };
        Settings {
            cache: cache.unwrap_or_else(|| home.join("hub")),
            archives: caches.join("clip"),
            endpoint: variable("HF_ENDPOINT").unwrap_or(HUB.into()).trim_end_matches('/').to_string(),
            data_mirror: variable(DATA_MIRROR).map(|text| text.trim_end_matches('/').to_string()),
            token: token.map(|text| text.trim().to_string()).filter(|text| !text.is_empty()).map(Token),
            offline: OFFLINE.load(Ordering::Relaxed) || is_set(offline),
            patience: Duration::from_secs(seconds.max(1)),
            pause: Duration::from_secs(1),
            tries: TRIES,
        }
    }
}

/// Returns whether the value of a variable means yes.
fn is_true(value: &str) -> bool {
    ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Settings {
        let variable = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        Settings::read(&variable, Path::new("/home/me"))
    }

    #[test]
    fn the_cache_is_where_the_python_package_has_it() {
        for (given, cache) in [
            (vec![], "/home/me/.cache/huggingface/hub"),
            (vec![("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (vec![("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], "/h/hub"),
            (vec![("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (vec![("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")], "/new"),
        ] {
            assert_eq!(read(&given).cache, Path::new(cache), "{given:?}");
        }
        assert_eq!(read(&[("XDG_CACHE_HOME", "/x")]).archives, Path::new("/home/me/.cache/clip"));
    }

    #[test]
    fn tokens_and_words_for_yes_are_read_as_the_python_package_reads_them() {
        let token = |given: &[(&str, &str)]| read(given).token.map(|token| token.0);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        assert_eq!(token(&[("HF_HOME", home)]).as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", " hf_own ")]).as_deref(), Some("hf_own"));
        assert_eq!(token(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert!(read(&[("HF_HUB_OFFLINE", "yes")]).offline && read(&[("TRANSFORMERS_OFFLINE", "1")]).offline);
        assert!(!read(&[("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")]).offline);
        assert_eq!(read(&[("HF_ENDPOINT", "https://mirror/")]).endpoint, "https://mirror");
    }
}
