//! A server on the loopback that stands for the Hub, with what goes wrong between it and a user. Large files lie on a second
//! server, as the Hub's do.
#![allow(dead_code)] // each test file uses a part of it

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::json;

/// A request that has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// The first byte of the range that is asked for.
    pub from: Option<usize>,
    pub authorization: Option<String>,
}

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Another status, with headers.
    Status(u16, &'static str),
    /// The connection ends after so many bytes of the content.
    Cut(usize),
    /// Nothing more comes after so many bytes of the content.
    Stall(usize),
    /// The content has another first byte.
    Flipped,
    /// Bytes follow the content.
    Longer,
    /// The whole content comes, whatever part was asked for.
    NoRange,
    /// A header, in place of the usual one.
    Header(&'static str, String),
    /// Another content.
    Body(String),
}

struct State {
    repository: String,
    commit: String,
    files: BTreeMap<String, Vec<u8>>,
    /// The name and the files of a data set.
    data: (String, BTreeMap<String, Vec<u8>>),
    /// Faults of requests whose method and path contain these texts, as many times as said.
    faults: Vec<(&'static str, &'static str, usize, Fault)>,
    seen: Vec<Request>,
}

/// A running server.
pub struct Hub {
    pub address: String,
    state: Arc<Mutex<State>>,
    stops: Arc<AtomicBool>,
}

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn git_hash(bytes: &[u8]) -> String {
    use sha1::Digest;
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_large(file: &str) -> bool {
    [".safetensors", ".bin", ".pt", ".parquet", ".tar"].iter().any(|end| file.ends_with(end))
}

impl Hub {
    /// A repository with these files.
    pub fn of(repository: &str, files: &[(&str, &[u8])]) -> Hub {
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        let (repository, commit) = (repository.to_string(), COMMIT.to_string());
        let state = Arc::new(Mutex::new(State {
            repository,
            commit,
            files,
            data: Default::default(),
            faults: vec![],
            seen: vec![],
        }));
        let stops = Arc::new(AtomicBool::new(false));
        let [own, large] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = format!("http://{}", own.local_addr().unwrap());
        let elsewhere = format!("http://{}", large.local_addr().unwrap());
        for listener in [own, large] {
            let (state, stops, elsewhere) = (state.clone(), stops.clone(), elsewhere.clone());
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if stops.load(Ordering::Relaxed) {
                        return;
                    }
                    let (state, elsewhere) = (state.clone(), elsewhere.clone());
                    thread::spawn(move || answer(stream, &state, &elsewhere));
                }
            });
        }
        Hub { address, state, stops }
    }

    /// A repository with the files of a folder.
    pub fn of_folder(repository: &str, folder: &std::path::Path) -> Hub {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        };
        let files: Vec<(String, Vec<u8>)> = entries.filter(|path| path.is_file()).map(read).collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        Hub::of(repository, &files)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Lets the next `times` requests of this method and path go wrong.
    pub fn fail(&self, method: &'static str, path: &'static str, times: usize, fault: Fault) {
        self.state().faults.push((method, path, times, fault));
    }

    /// Lets everything go well from now on.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Adds a data set.
    pub fn put_data(&self, repository: &str, files: &[(&str, &[u8])]) {
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        self.state().data = (repository.to_string(), files);
    }

    pub fn set_commit(&self, commit: &str) {
        self.state().commit = commit.into();
    }

    pub fn put(&self, file: &str, bytes: &[u8]) {
        self.state().files.insert(file.into(), bytes.into());
    }

    /// The requests so far, which are forgotten.
    pub fn seen(&self) -> Vec<Request> {
        std::mem::take(&mut self.state().seen)
    }

    /// Ends the server: nobody listens at its address afterwards.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_string);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, from: None, authorization: None };
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ")?;
        match name.to_lowercase().as_str() {
            "range" => request.from = value.strip_prefix("bytes=")?.split('-').next()?.parse().ok(),
            "authorization" => request.authorization = Some(value.to_string()),
            _ => {}
        }
    }
    Some(request)
}

/// What is sent.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: u16, headers: &[(&str, String)], body: Vec<u8>) -> Answer {
        Answer {
            status,
            headers: headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            body,
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_string(), value.to_string()));
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>, elsewhere: &str) {
    let Some(request) = read_request(&stream) else { return };
    let mut guard = state.lock().unwrap();
    guard.seen.push(request.clone());
    let fits = |(method, path, times, _): &&mut (&str, &str, usize, Fault)| {
        *times > 0 && *method == request.method && request.path.contains(*path)
    };
    let fault = guard.faults.iter_mut().find(fits).map(|(_, _, times, fault)| {
        *times -= 1;
        fault.clone()
    });
    let from = if matches!(fault, Some(Fault::NoRange)) { None } else { request.from };
    let mut whole = usual(&guard, &Request { from, ..request.clone() }, elsewhere);
    drop(guard);
    let (mut sent, mut stalls) = (whole.body.len(), false);
    match fault {
        Some(Fault::Status(status, headers)) => {
            whole = Answer::of(status, &[], vec![]);
            headers
                .split('\n')
                .filter_map(|line| line.split_once(": "))
                .for_each(|(name, value)| whole.set(name, value));
            sent = 0;
        }
        Some(Fault::Cut(bytes)) => sent = bytes.min(sent),
        Some(Fault::Stall(bytes)) => (sent, stalls) = (bytes.min(sent), true),
        Some(Fault::Flipped) => whole.body[0] ^= 1,
        Some(Fault::Longer) => {
            whole.body.extend([0; 9]);
            sent = whole.body.len();
        }
        Some(Fault::Header(name, value)) => whole.set(name, &value),
        Some(Fault::Body(text)) => {
            whole.body = text.into_bytes();
            sent = whole.body.len();
        }
        Some(Fault::NoRange) | None => {}
    }
    let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", whole.status);
    if !whole.headers.iter().any(|(name, _)| name == "content-length") {
        head += &format!("content-length: {}\r\n", whole.body.len());
    }
    whole.headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    let _ = stream.write_all((head + "\r\n").as_bytes());
    if request.method == "HEAD" {
        return;
    }
    let _ = stream.write_all(&whole.body[..sent]);
    let _ = stream.flush();
    if stalls {
        thread::sleep(Duration::from_secs(20));
    }
}

fn usual(state: &State, request: &Request, elsewhere: &str) -> Answer {
    let (commit, repository) = (&state.commit, &state.repository);
    let not_found = |code: &str| Answer::of(404, &[("x-error-code", code.to_string())], vec![]);
    let part = |bytes: &[u8], headers: &[(&str, String)]| match request.from {
        Some(from) if from < bytes.len() => {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            let mut answer = Answer::of(206, headers, bytes[from..].to_vec());
            answer.set("content-range", &range);
            answer
        }
        Some(_) => Answer::of(416, headers, vec![]),
        None => Answer::of(200, headers, bytes.to_vec()),
    };
    if let Some(hash) = request.path.strip_prefix("/blob/") {
        let hash = hash.split('?').next().unwrap();
        return match state.files.values().chain(state.data.1.values()).find(|bytes| sha256(bytes) == hash) {
            Some(bytes) => part(bytes, &[]),
            None => not_found(""),
        };
    }
    let of_data = request.path.starts_with("/api/datasets/") || request.path.starts_with("/datasets/");
    let (repository, files) = if of_data { (&state.data.0, &state.data.1) } else { (repository, &state.files) };
    let kind = if of_data { "datasets" } else { "models" };
    if let Some(rest) = request.path.strip_prefix(&format!("/api/{kind}/{repository}/revision/")) {
        if rest != "main" && rest != commit {
            return not_found("RevisionNotFound");
        }
        let siblings: Vec<_> = files.keys().map(|file| json!({ "rfilename": file })).collect();
        return Answer::of(200, &[], json!({ "sha": commit, "siblings": siblings }).to_string().into_bytes());
    }
    let either = |file: &str| match file.strip_prefix("datasets/") {
        Some(file) => state.data.1.get(file),
        None => state.files.get(file),
    };
    if let Some(bytes) = request.path.strip_prefix("/cached/").and_then(either) {
        let headers = [("etag", format!("\"{}\"", git_hash(bytes))), ("x-repo-commit", commit.clone())];
        return part(bytes, &headers);
    }
    if let Some(bytes) = request.path.strip_prefix("/direct/").and_then(|file| state.files.get(file)) {
        return part(bytes, &[]);
    }
    let start = if of_data { "/datasets" } else { "" };
    let resolved = request.path.strip_prefix(&format!("{start}/{repository}/resolve/"));
    let Some((revision, file)) = resolved.and_then(|rest| rest.split_once('/')) else {
        return not_found("RepoNotFound");
    };
    let Some(bytes) = files.get(file).filter(|_| revision == commit || revision == "main") else {
        return not_found("EntryNotFound");
    };
    // The Hub sends small files on to another path of its own, and large ones to another host.
    if !is_large(file) {
        return Answer::of(
            307,
            &[("location", format!("/cached{start}/{file}")), ("x-repo-commit", commit.clone())],
            vec![],
        );
    }
    let hash = sha256(bytes);
    let headers = [
        ("location", format!("{elsewhere}/blob/{hash}?signature=secret")),
        ("x-linked-etag", format!("\"{hash}\"")),
        ("x-linked-size", bytes.len().to_string()),
        ("x-repo-commit", commit.clone()),
    ];
    Answer::of(302, &headers, vec![])
}
