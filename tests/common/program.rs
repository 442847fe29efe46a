//! The command line of bella in a test: run by a copy of the test's own process, or as a program where the way in which it starts
//! matters.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::assert::Assert;

/// Variables that are read before `main`, by their beginnings.
const READ_AT_START: [&str; 3] = ["OMP_", "GOMP_", "LD_"];

/// How the threads of a command wait for each other.
const WAIT: (&str, &str) = ("OMP_WAIT_POLICY", "passive");

/// A command of bella that runs to its end. A test that sends signals or closes pipes starts the program itself.
pub struct Bella {
    words: Vec<OsString>,
    /// Changes of this process's environment; `None` removes a variable.
    changes: BTreeMap<OsString, Option<OsString>>,
    folder: PathBuf,
    input: Vec<u8>,
}

impl Bella {
    /// Bella with arguments and the environment of this process.
    pub fn new(folder: &Path, words: &[&str]) -> Bella {
        let words = words.iter().map(OsString::from).collect();
        // What a command prints must not depend on what else runs on the machine, and it keeps no core from other tests while it waits.
        let changes = BTreeMap::from([(WAIT.0.into(), Some(WAIT.1.into()))]);
        Bella { words, changes, folder: folder.to_path_buf(), input: Vec::new() }
    }

    pub fn arg(&mut self, word: impl AsRef<OsStr>) -> &mut Bella {
        self.words.push(word.as_ref().to_os_string());
        self
    }

    pub fn args(&mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Bella {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_os_string()));
        self
    }

    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Bella {
        self.changes.insert(name.as_ref().to_os_string(), Some(value.as_ref().to_os_string()));
        self
    }

    pub fn envs(&mut self, all: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> &mut Bella {
        all.into_iter().for_each(|(name, value)| {
            self.env(name, value);
        });
        self
    }

    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Bella {
        self.changes.insert(name.as_ref().to_os_string(), None);
        self
    }

    pub fn current_dir(&mut self, folder: impl AsRef<Path>) -> &mut Bella {
        self.folder = folder.as_ref().to_path_buf();
        self
    }

    pub fn write_stdin(&mut self, input: impl Into<Vec<u8>>) -> &mut Bella {
        self.input = input.into();
        self
    }

    /// Runs the command to its end.
    pub fn output(&mut self) -> Result<Output> {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        if self.starts_like_any() {
            return super::copies::run(&super::copies::Asked {
                folder: &self.folder,
                words: &self.words,
                variables: self.environment(),
                input: &self.input,
            });
        }
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_bella"));
        command.current_dir(&self.folder).args(&self.words).write_stdin(self.input.clone());
        for (name, value) in &self.changes {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.output()
    }

    pub fn assert(&mut self) -> Assert {
        Assert::new(self.output().unwrap())
    }

    /// Whether the command does the same in a process that was bella before it had arguments and an environment.
    fn starts_like_any(&self) -> bool {
        let is_early = |(name, value): (&OsString, &Option<OsString>)| {
            let is_usual = name == WAIT.0 && value.as_ref().is_some_and(|value| value == WAIT.1);
            !is_usual && READ_AT_START.iter().any(|start| name.to_string_lossy().starts_with(start))
        };
        !self.words.iter().any(|word| word == "--wait") && !self.changes.iter().any(is_early)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut all: BTreeMap<_, _> = std::env::vars_os().collect();
        for (name, value) in &self.changes {
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        all.into_iter().collect()
    }
}
