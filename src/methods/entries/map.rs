//! `[method.map]`: one particle, plain training (the papers' "Single").

use crate::methods::independent::Independent;
use crate::methods::{Entry, Method, MethodSpec, Parts};

pub static ENTRY: Entry = Entry {
    key: "map",
    about: "one particle, plain training",
    paper: "Single",
    names: &[("full", "Single"), ("low-rank", "Single, low-rank")],
    read: |_, _| Box::new(Spec),
};

struct Spec;

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        1
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Independent { parts })
    }

    fn resolved(&self) -> toml::Table {
        toml::Table::new()
    }
}
