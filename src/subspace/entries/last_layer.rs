//! `[subspace.last-layer]`: the head alone, on the frozen features of the network. What enters it is cached, so each image
//! goes through the network once.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters, Weights};
use crate::schema::settings;
use crate::subspace::{Combined, Entry, Layout, Subspace, SubspaceSpec, flat_head, initial_head, push_head, updates};

pub static ENTRY: Entry =
    Entry { key: "last-layer", about: "the head alone; the network stays as it is", read: |_| Box::new(Spec) };

settings! {
    struct Spec;
}

impl SubspaceSpec for Spec {
    fn build(&self, _: &dyn Network, _: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        ensure!(
            head.training != Training::Never,
            "subspace.last-layer trains the head, and this one is frozen: use [head.linear], [head.checkpoint] or \
             [head.label-words]"
        );
        ensure!(
            head.classes() > 0,
            "subspace.last-layer trains a head of classes, and head.answers writes tokens: use [subspace.low-rank] with \
             targets = [\"lm_head\"]"
        );
        let mut layout = Layout::default();
        push_head(&mut layout, head);
        Ok(Box::new(LastLayer { layout, head: head.to(Device::Cpu, Kind::Float) }))
    }
}

struct LastLayer {
    layout: Layout,
    head: Head,
}

impl Subspace for LastLayer {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor> {
        Ok(match self.head.training {
            Training::Always => initial_head(seed, particle, &self.head),
            _ => flat_head(&self.head),
        })
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        for (column, leaf) in self.layout.columns.iter().zip(leaves) {
            weights.replace(&column.name, leaf.shallow_clone());
        }
        weights
    }

    fn origin(&self) -> Tensor {
        let head = flat_head(&self.head);
        if self.head.training == Training::Always { head.zeros_like() } else { head }
    }

    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        let theta = updates::around(&self.origin(), theta, coefficients)?;
        Ok(Combined { subspace: self.again(), theta })
    }

    fn again(&self) -> Box<dyn Subspace> {
        Box::new(LastLayer { layout: self.layout.clone(), head: self.head.again() })
    }
}
