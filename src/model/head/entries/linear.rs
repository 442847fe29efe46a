//! `[head.linear]`: a new linear classifier. Each particle trains it from its own start.

use anyhow::Result;

use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
use crate::schema::settings;

pub static ENTRY: Entry =
    Entry { key: "linear", about: "a new linear layer with bias, trained per particle", read: |_| Box::new(Linear) };

settings! {
    struct Linear;
}

impl HeadSpec for Linear {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        // The weights only give the shape; the trained ones are in the rows of the particles.
        Ok(Head::zeros(context.classes.len() as i64, context.width, self.training()))
    }

    fn training(&self) -> Training {
        Training::Always
    }
}
