//! `[method.map]`: one particle with plain training (the papers' "Single").

use crate::methods::{Entry, MethodSpec, Particles, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "map",
    about: "one particle, plain training",
    paper: "Single",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::One,
    bench: &[Variant { key: "map", sets: &[], asks_for_mixing: false }],
    names: &[("full", "Single"), ("low-rank", "Single, low-rank")],
    names_of_many: &[],
    read: |_, _| Box::new(Spec),
};

settings! {
    struct Spec;
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        1
    }

    fn asks_at_theta(&self) -> bool {
        true
    }
}
