//! Downloads from a server of their own on the loopback, and everything that goes wrong on the way.

#[path = "../../../tests/common/hub.rs"]
pub mod server;

mod faults;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::name::Archive;
use super::settings::Token;
use super::{Place, Settings, fetch_archive};
use server::{COMMIT, Fault, Hub};

const CONFIG: &[u8] = br#"{"model_type": "vit", "image_size": 8}"#;
const PREPARATION: &[u8] = b"{}";
pub const SNAPSHOT: &str = "models--org--tiny/snapshots/0123456789abcdef0123456789abcdef01234567";

/// Three megabytes, so that a part of them counts as progress.
fn weights() -> Vec<u8> {
    (0..3u32 << 20).map(|at| (at.wrapping_mul(2654435761) >> 13) as u8).collect()
}

pub struct Case {
    pub hub: Hub,
    pub folder: TempDir,
    pub settings: Settings,
}

impl Case {
    pub fn new() -> Case {
        let weights = weights();
        let files: [(&str, &[u8]); 5] = [
            ("config.json", CONFIG),
            ("preprocessor_config.json", PREPARATION),
            ("model.safetensors", &weights),
            ("pytorch_model.bin", b"a pickle"),
            ("README.md", b"# tiny"),
        ];
        Case::of(&files)
    }

    pub fn of(files: &[(&str, &[u8])]) -> Case {
        let (hub, folder) = (Hub::of("org/tiny", files), tempfile::tempdir().unwrap());
        let settings = Settings {
            cache: folder.path().join("hub"),
            archives: folder.path().join("clip"),
            endpoint: hub.address.clone(),
            data_mirror: None,
            token: None,
            offline: false,
            patience: Duration::from_millis(700),
            pause: Duration::from_millis(1),
            tries: 5,
        };
        Case { hub, folder, settings }
    }

    fn get(&self, name: &str) -> Result<PathBuf, String> {
        let place = Place::of(Path::new(name), &self.settings).map_err(|error| format!("{error:#}"))?;
        place.fetch(&self.settings).map(Path::to_path_buf).map_err(|error| format!("{error:#}"))
    }

    /// Gets the checkpoint and compares it.
    fn whole(&self) {
        let folder = self.get("hf://org/tiny").unwrap();
        assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), weights());
    }

    /// Fails to get the checkpoint, with a message of one line that contains all of these; no weights may be left with a name.
    fn refused(&self, contains: &[&str]) {
        let error = self.get("hf://org/tiny").unwrap_err();
        assert!(!error.contains('\n') && contains.iter().all(|text| error.contains(text)), "{contains:?}: {error}");
        assert!(!self.path(SNAPSHOT).join("model.safetensors").exists(), "{error}");
        let blobs = std::fs::read_dir(self.path("models--org--tiny/blobs")).into_iter().flatten().flatten();
        let large = blobs.filter(|blob| blob.metadata().unwrap().len() > 1000).map(|blob| blob.file_name());
        assert!(large.into_iter().all(|name| name.to_string_lossy().ends_with(".incomplete")), "{error}");
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.settings.cache.join(below)
    }

    fn part(&self) -> Option<u64> {
        let blobs = std::fs::read_dir(self.path("models--org--tiny/blobs")).ok()?.flatten();
        let mut parts = blobs.filter(|blob| blob.file_name().to_string_lossy().ends_with(".incomplete"));
        Some(parts.next()?.metadata().unwrap().len())
    }
}

#[test]
fn a_download_has_the_layout_of_the_python_package_and_is_used_without_a_request_afterwards() {
    let case = Case::new();
    case.whole();
    assert_eq!(std::fs::read_to_string(case.path("models--org--tiny/refs/main")).unwrap(), COMMIT);
    for (file, hash) in [("config.json", "40:"), ("model.safetensors", "64:")] {
        let link = std::fs::read_link(case.path(SNAPSHOT).join(file)).unwrap();
        let digits = link.strip_prefix("../../blobs").unwrap().to_str().unwrap().len();
        assert_eq!(format!("{digits}:"), hash);
    }
    let names: Vec<String> = std::fs::read_dir(case.path(SNAPSHOT))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.contains("pytorch") || name.contains("README")), "{names:?}");
    let absent = case.path(&format!("models--org--tiny/.no_exist/{COMMIT}/tokenizer.json"));
    assert!(absent.is_file() && case.path(".locks/models--org--tiny").is_dir() && case.part().is_none());
    case.hub.seen();
    case.whole();
    case.get(&format!("hf://org/tiny@{COMMIT}")).unwrap();
    assert_eq!(case.hub.seen(), []);
    case.hub.stop();
    case.whole();
    let offline = Case { settings: Settings { offline: true, ..case.settings.clone() }, ..case };
    offline.whole();
    assert_eq!(Place::of(Path::new("hf://org/tiny"), &offline.settings).unwrap().commit(), Some(COMMIT));
}

#[test]
fn offline_opens_no_socket_and_says_what_to_do() {
    let mut case = Case::new();
    case.settings.offline = true;
    case.refused(&["hf://org/tiny: is not in", "--offline or HF_HUB_OFFLINE", "HF_HOME"]);
    let error = case.get("openai://ViT-B-32").unwrap_err();
    assert!(error.contains("openai://ViT-B-32: is not at") && error.contains("put it there"), "{error}");
    assert_eq!(case.hub.seen(), []);
    // A cache with the configs alone is no checkpoint yet, and no mistake until weights are asked for.
    case.settings.offline = false;
    Place::of(Path::new("hf://org/tiny"), &case.settings).unwrap();
    case.settings.offline = true;
    case.hub.seen();
    assert!(Place::of(Path::new("hf://org/tiny"), &case.settings).unwrap().join("config.json").is_file());
    case.refused(&["is not in"]);
    assert_eq!(case.hub.seen(), []);
}

#[test]
fn a_token_goes_to_the_endpoint_alone() {
    let mut case = Case::new();
    case.settings.token = Some(Token("hf_secret".into()));
    case.whole();
    let seen = case.hub.seen();
    let (large, own): (Vec<_>, Vec<_>) = seen.iter().partition(|request| request.path.starts_with("/blob/"));
    assert!(large.len() == 1 && large[0].authorization.is_none(), "{large:?}");
    assert!(own.iter().all(|request| request.authorization.as_deref() == Some("Bearer hf_secret")), "{own:?}");
}

#[test]
fn what_the_hub_refuses_is_one_line_with_the_way_out() {
    let list = "/api/models/";
    for (status, headers, wanted) in [
        (401, "", vec!["answers 401", "no token was sent", "check the name", "HF_TOKEN"]),
        (401, "x-error-code: GatedRepo", vec!["is gated", "accept its terms at http", "HF_TOKEN"]),
        (403, "x-error-code: GatedRepo", vec!["is gated", "accept its terms"]),
        (403, "", vec!["answers 403", "HF_TOKEN"]),
        (404, "", vec!["has no /api/models/org/tiny/revision/main", "check the name"]),
        (404, "x-error-code: RevisionNotFound", vec!["no such revision"]),
        (429, "retry-after: 3600", vec!["answers 429", "asks to wait 3600 s"]),
        (429, "", vec!["answers 429, 5 times", "try again later"]),
        (503, "", vec!["answers 503, 5 times", "name a mirror by HF_ENDPOINT"]),
        (418, "", vec!["answers 418", "HF_ENDPOINT"]),
        (302, "location: http://192.0.2.1/x", vec!["is sent on to http://192.0.2.1/x", "not encrypted"]),
        (302, "location: /api/models/org/tiny/revision/main", vec!["more than 5 redirects"]),
        (302, "", vec!["a redirect that leads nowhere"]),
    ] {
        let mut case = Case::new();
        case.hub.fail("GET", list, 99, Fault::Status(status, headers));
        case.refused(&wanted);
        case.settings.token = Some(Token("hf_secret".into()));
        let error = case.get("hf://org/tiny").unwrap_err();
        assert!(!error.contains("hf_secret") && error.contains("org/tiny"), "{error}");
        case.hub.heal();
        case.whole();
    }
}

#[test]
fn a_repository_without_weights_is_refused_before_anything_is_downloaded() {
    let case = Case::of(&[("config.json", CONFIG), ("flax_model.msgpack", b"x")]);
    case.refused(&["hf://org/tiny: has only flax_model.msgpack", "model.safetensors", "use another repository"]);
    assert!(!case.path("models--org--tiny/blobs").exists());
    let pickle = Case::of(&[("config.json", CONFIG), ("pytorch_model.bin", b"x")]);
    assert!(pickle.get("hf://org/tiny").unwrap().join("pytorch_model.bin").is_file());
    let adapter =
        Case::of(&[("adapter_config.json", b"{}"), ("adapter_model.safetensors", b"x"), ("optimizer.pt", b"y")]);
    assert!(adapter.get("hf://org/tiny").unwrap().join("adapter_model.safetensors").is_file());
}

#[test]
fn many_at_once_download_once() {
    let case = Case::new();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| case.whole())).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    let contents = case.hub.seen().iter().filter(|request| request.path.starts_with("/blob/")).count();
    assert_eq!(contents, 1);
}

#[test]
fn what_python_has_left_is_used() {
    let case = Case::new();
    let folder = case.path(SNAPSHOT);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(case.path("models--org--tiny/refs")).unwrap();
    std::fs::write(case.path("models--org--tiny/refs/main"), COMMIT).unwrap();
    std::fs::write(folder.join("config.json"), CONFIG).unwrap();
    std::fs::write(folder.join("pytorch_model.bin"), "theirs").unwrap();
    std::fs::write(folder.join("preprocessor_config.json"), "{}").unwrap();
    assert_eq!(case.get("hf://org/tiny").unwrap(), folder);
    assert_eq!(case.hub.seen(), []);
    // Without the preparation of images, the Hub is asked for it; without the Hub, what is there must do.
    std::fs::remove_file(folder.join("preprocessor_config.json")).unwrap();
    case.hub.fail("GET", "/api/models/", 1, Fault::Status(404, ""));
    assert_eq!(case.get("hf://org/tiny").unwrap(), folder);
    case.get("hf://org/tiny").unwrap();
    assert!(folder.join("preprocessor_config.json").is_file());
    assert!(!folder.join("model.safetensors").exists());
}

/// A cluster whose packets are dropped is waited for once, and not once for each name and try.
#[test]
fn a_silent_hub_is_waited_for_once_where_the_cache_is_complete() {
    let case = Case::new();
    for name in ["tiny", "other"] {
        let folder = case.path(SNAPSHOT.replace("--tiny", &format!("--{name}")).as_str());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(case.path(&format!("models--org--{name}/refs"))).unwrap();
        std::fs::write(case.path(&format!("models--org--{name}/refs/main")), COMMIT).unwrap();
        std::fs::write(folder.join("config.json"), CONFIG).unwrap();
        std::fs::write(folder.join("model.safetensors"), "theirs").unwrap();
    }
    case.hub.fail("GET", "/api/models/", 9, Fault::Stall(0));
    let began = Instant::now();
    for name in ["tiny", "other", "tiny"] {
        case.get(&format!("hf://org/{name}")).unwrap();
    }
    assert_eq!(case.hub.seen().len(), 1);
    assert!(began.elapsed() < case.settings.patience * 3);
}

#[test]
fn no_network_is_said_at_once() {
    let mut case = Case::new();
    case.settings.endpoint = "https://hub.invalid".into();
    case.refused(&["hf://org/tiny", "hub.invalid", "--offline"]);
    case.settings.endpoint = "hub".into();
    case.refused(&["HF_ENDPOINT = hub: must be an address"]);
}

#[test]
fn a_cache_of_another_user_is_named() {
    let case = Case::new();
    std::fs::create_dir_all(&case.settings.cache).unwrap();
    // A file in the place of the folder, which also root cannot write below.
    std::fs::write(case.path("models--org--tiny"), "").unwrap();
    case.refused(&["models--org--tiny", "set HF_HOME to a folder of your own"]);
}

#[test]
fn names_are_checked() {
    let case = Case::new();
    for (name, wanted) in [
        ("hf://org/tiny/config.json", "must be hf://ORG/NAME"),
        ("hf://../tiny", "must be hf://ORG/NAME"),
        ("hf://org/a--b", "must be hf://ORG/NAME"),
        ("hf://", "must be hf://ORG/NAME"),
        ("hf://datasets/org/set", "is no repository of a model"),
        ("hf://org/tiny@../../x", "the revision behind @"),
        ("hf://org/tiny@", "the revision behind @"),
        ("hf://org/tiny@v9", "no such revision"),
        ("openai://ViT-B-33", "unknown; known: RN50"),
    ] {
        let error = case.get(name).unwrap_err();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn an_archive_of_openais_has_the_hash_of_its_address() {
    let bytes = weights();
    let sha256 = crate::base::hash::hex(<sha2::Sha256 as sha2::Digest>::digest(&bytes));
    let archive = Archive { name: "Tiny", sha256: sha256.clone().leak() };
    let case = Case::of(&[(&format!("openaipublic.azureedge.net/clip/models/{sha256}/Tiny.pt"), &bytes)]);
    let target = case.settings.archives.join("Tiny.pt");
    std::fs::create_dir_all(&case.settings.archives).unwrap();
    std::fs::write(&target, "half of one").unwrap();
    let (data_mirror, token) = (Some(format!("{}/direct", case.hub.address)), Some(Token("hf_secret".into())));
    let settings = Settings { data_mirror, token, ..case.settings.clone() };
    let offline = Settings { offline: true, ..settings.clone() };
    let error = format!("{:#}", fetch_archive(&archive, &target, &offline).unwrap_err());
    assert!(error.contains("is not OpenAI's archive"), "{error}");
    case.hub.fail("GET", "/direct/", 1, Fault::Cut(2_000_000));
    case.hub.fail("GET", "/direct/", 1, Fault::Flipped);
    let error = format!("{:#}", fetch_archive(&archive, &target, &settings).unwrap_err());
    assert!(error.contains("what came has the hash"), "{error}");
    fetch_archive(&archive, &target, &settings).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), bytes);
    let seen = case.hub.seen();
    assert!(seen.len() > 3 && seen.iter().all(|request| request.authorization.is_none()), "{seen:?}");
    fetch_archive(&archive, &target, &settings).unwrap();
    fetch_archive(&archive, &target, &offline).unwrap();
    assert_eq!(case.hub.seen(), []);
}
