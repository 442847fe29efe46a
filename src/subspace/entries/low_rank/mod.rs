//! `[subspace.low-rank]`: W_i = W_0 + (alpha / rank) · B_i A_i on chosen linear layers (Bella, equation 3; Hu et al.
//! 2021, arXiv 2106.09685). A starts Kaiming-uniform (a = √5), that is U(±1/√in), and B starts at 0. With `gain` g, A starts
//! Xavier-uniform, U(±g √(6 / (rank + in))): the knob by which LoRA-Ensemble (Mühlematter et al. 2024, arXiv 2405.14438) sets
//! how different its members become; with `init = "normal"` at N(0, `std`²), as there, too. With `init = "pissa"` the factors start as the principal part of W_0, and what remains of W_0
//! stays frozen (Meng et al. 2024, arXiv 2404.02948). With `dora` each row of W_i is scaled to a trained length m (Liu et al. 2024,
//! arXiv 2402.09353). With `init = "eva"` A starts along the principal directions of the layer's inputs (Paischer et al. 2024, arXiv
//! 2410.07170). Layers in `whole`, which lie outside of the blocks, are trained as they are (PEFT's `modules_to_save`).

mod particles;
mod start;

use anyhow::{Context, Result, ensure};
use tch::Kind;

use self::particles::{DORA, Layer, LowRankSubspace, Whole};
use self::start::{Factors, Start, row_norms};
use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters, Slot, SlotKind, is_outside};
use crate::schema::{Choice, Reader, settings, words};
use crate::subspace::targets::{Chosen, Target};
use crate::subspace::{Entry, Subspace, SubspaceSpec};

pub use self::particles::{MAGNITUDE, magnitude_of};

pub static ENTRY: Entry = Entry {
    key: "low-rank",
    about: "W_0 + (alpha / rank) B A on chosen linear layers; W_0 frozen and shared",
    read: |reader| Box::new(Spec::read(reader)),
};

words! {
    /// The start of the factors.
    enum Init {
        Uniform = "uniform",
        Normal = "normal",
        Pissa = "pissa",
        Eva = "eva",
    }
}

settings! {
    struct Spec {
        /// Rank of the update of each layer.
        rank: usize, in 1..=4096;
        /// Scale of the update, which is alpha / rank times B A.
        alpha: f64 = 16.0, in above(0.0);
        /// Whether the update is alpha / √rank times B A (rsLoRA), so that its size does not fall with the rank.
        rslora: bool = false, omit false;
        /// Ranks of some layers, each as `LAYER=RANK` with a target or the end of a layer's name, such as `"11.mlp.fc=8"`; the
        /// first that fits counts.
        rank_pattern: Vec<String>, unset Vec::new(), omit Vec::<String>::new();
        /// Alphas of some layers, likewise.
        alpha_pattern: Vec<String>, unset Vec::new(), omit Vec::<String>::new();
        /// Linear layers of each block that get an update; of a language network also its output matrix, `lm_head`; of
        /// one that sees images, `projector.*` and `vision.*`; of a text encoder, `pooler` and `embed_proj`; of a module, `linear` and
        /// `pointwise` (1 × 1 convolutions).
        targets: Vec<Target> = vec![Target::Fc, Target::Proj];
        /// Layers outside of the blocks that are trained whole beside the updates, as PEFT trains its `modules_to_save`: `pooler` of a text
        /// encoder, `lm_head` of a language network.
        whole: Vec<Target>, unset Vec::new(), omit Vec::<Target>::new();
        /// Blocks that get updates, such as `"6-11"`; all by default.
        blocks: Option<String>;
        /// Gain g of Xavier's start of A, U(±g √(6 / (rank + in))), for more diverse particles; without it U(±1/√in).
        gain: Option<f64>, in above(0.0);
        /// Start of the factors: A uniform and B at 0, A Gaussian and B at 0, the principal singular directions of W_0, of which
        /// the rest stays frozen (PiSSA), or A along the principal directions of the layer's inputs over training images and B at 0
        /// (EVA).
        init: Init = Init::Uniform, omit Init::Uniform;
        /// Standard deviation of A's start with `init = "normal"`; 0.02 by default.
        std: Option<f64>, in above(0.0);
        /// Whether each row of W_0 + ΔW is scaled to a trained length, which starts as that of W_0 (DoRA).
        dora: bool = false, omit false;
    } then check
}

/// The standard deviation of A's Gaussian start unless the config says otherwise, which is that of LoRA-Ensemble's code.
const STD: f64 = 0.02;

impl Spec {
    fn check(&self, reader: &Reader) {
        self.chosen().check(reader);
        if let Some(both) = self.whole.iter().find(|target| self.targets.contains(target)) {
            reader.problem(
                "whole",
                format!("`{both}` is among targets, too: a layer is trained whole, or gets an update"),
            );
        }
        if self.init != Init::Uniform && self.gain.is_some() {
            reader
                .problem("gain", format!("is of the uniform start of A, which init = \"{}\" is not", self.init.word()));
        }
        if self.init != Init::Normal && self.std.is_some() {
            reader.problem("std", "is of the Gaussian start of A: leave it out, or set init = \"normal\"");
        }
        for (key, all) in [("rank_pattern", &self.rank_pattern), ("alpha_pattern", &self.alpha_pattern)] {
            let fits = |value: f64| match key {
                "rank_pattern" => value.fract() == 0.0 && (1.0..=4096.0).contains(&value),
                _ => value > 0.0 && value.is_finite(),
            };
            let rule = if key == "rank_pattern" { "a whole number from 1 to 4096" } else { "a number above 0" };
            if let Some(bad) = all.iter().find(|text| pattern(text).is_none_or(|(_, value)| !fits(value))) {
                reader.problem(key, format!("`{bad}` must be LAYER=VALUE with {rule}, such as \"mlp.fc=8\""));
            }
        }
    }

    /// Returns the rank, and the scale of the update, of a layer.
    fn rank_and_scale(&self, layer: &str) -> (i64, f64) {
        let rank = value_of(&self.rank_pattern, layer).unwrap_or(self.rank as f64);
        let alpha = value_of(&self.alpha_pattern, layer).unwrap_or(self.alpha);
        (rank as i64, alpha / if self.rslora { rank.sqrt() } else { rank })
    }

    /// Returns a layer with the start of its factors.
    fn layer(&self, slot: &Slot, base: &Parameters) -> Result<Layer> {
        let Slot { name, inputs, outputs, kind, .. } = slot;
        let (rank, scale) = self.rank_and_scale(name);
        let key = if value_of(&self.rank_pattern, name).is_some() { "rank_pattern" } else { "rank" };
        let most = *outputs.min(inputs);
        ensure!(
            rank <= most,
            "subspace.low-rank.{key} = {rank}: {name} is {outputs} x {inputs}, its rank cannot exceed {most}"
        );
        ensure!(
            !self.dora || *kind == SlotKind::Linear,
            "subspace.low-rank.dora: {name} is a convolution, whose kernels have no rows to scale: leave it out of targets"
        );
        let weight = || {
            let found = base.value(&format!("{name}.weight"));
            found.with_context(|| format!("subspace.low-rank: the checkpoint has no {name}.weight"))
        };
        let given = match self.init {
            Init::Uniform | Init::Normal | Init::Eva => None,
            Init::Pissa => {
                ensure!(
                    !base.is_quantised(&format!("{name}.weight")),
                    "subspace.low-rank.init = \"pissa\": takes the principal part out of {name}, which is quantised: use init = \
                     \"uniform\", or weights that are not"
                );
                let why = || {
                    format!("subspace.low-rank.init = \"pissa\": {name} cannot be decomposed: use init = \"uniform\"")
                };
                Some(Factors::principal(&weight()?, rank, scale).with_context(why)?)
            }
        };
        let magnitude = if self.dora { Some(row_norms(&weight()?)) } else { None };
        let (name, inputs, outputs) = (name.clone(), *inputs, *outputs);
        Ok(Layer { name, rank, inputs, outputs, scale, given, magnitude })
    }

    /// Returns a layer that is trained whole.
    fn whole_layer(&self, slot: &Slot, network: &dyn Network, base: &Parameters) -> Result<Whole> {
        let name = &slot.name;
        ensure!(
            is_outside(network, slot),
            "subspace.low-rank.whole: {name} is a layer of a block: train it by an update (targets), or all weights ([subspace.full])"
        );
        ensure!(
            !base.is_quantised(&format!("{name}.weight")),
            "subspace.low-rank.whole: {name} is quantised: train it by an update (targets)"
        );
        let of = |part: &str| {
            let name = format!("{name}.{part}");
            base.get(&name).map(|value| (name, value.shallow_clone()))
        };
        Ok(Whole { name: name.clone(), parameters: ["weight", "bias"].into_iter().filter_map(of).collect() })
    }

    /// Checks that every pattern fits a layer that gets an update.
    fn check_patterns(&self, layers: &[String]) -> Result<()> {
        for (key, all) in [("rank_pattern", &self.rank_pattern), ("alpha_pattern", &self.alpha_pattern)] {
            for text in all {
                let is_used = layers.iter().any(|layer| value_of(std::slice::from_ref(text), layer).is_some());
                let first = layers.first().map_or("", String::as_str);
                ensure!(
                    is_used,
                    "subspace.low-rank.{key}: `{text}` fits no layer that gets an update: write a target, or the end of a name such \
                     as `{first}`"
                );
            }
        }
        Ok(())
    }

    /// Returns the choice of layers that get an update.
    fn chosen(&self) -> Chosen<'_> {
        Chosen { subspace: ENTRY.key, key: "targets", targets: &self.targets, blocks: self.blocks.as_deref() }
    }
}

impl SubspaceSpec for Spec {
    fn equal_starts(&self, _: Training) -> bool {
        false
    }

    fn rank(&self) -> Option<i64> {
        Some(self.rank as i64)
    }

    fn scaled_by(&self) -> Option<&'static str> {
        self.dora.then_some(DORA)
    }

    fn build(&self, network: &dyn Network, base: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        let slots = self.chosen().slots(network)?;
        let layers = slots.iter().map(|slot| self.layer(slot, base)).collect::<Result<Vec<_>>>()?;
        let whole = Chosen { key: "whole", targets: &self.whole, ..self.chosen() }.slots(network)?;
        let whole = whole.iter().map(|slot| self.whole_layer(slot, network, base)).collect::<Result<Vec<_>>>()?;
        self.check_patterns(&layers.iter().map(|layer| layer.name.clone()).collect::<Vec<_>>())?;
        let trained_head = head.training == Training::Always;
        let head = trained_head.then(|| head.to(tch::Device::Cpu, Kind::Float));
        let start = match self.init {
            Init::Uniform => Start::Uniform { gain: self.gain },
            Init::Normal => Start::Normal { std: self.std.unwrap_or(STD) },
            Init::Pissa => Start::Given,
            Init::Eva => Start::Inputs,
        };
        Ok(Box::new(LowRankSubspace::new(layers, whole, start, head)))
    }
}

/// Returns the layer and the value of a pattern `LAYER=VALUE`.
fn pattern(text: &str) -> Option<(&str, f64)> {
    let (layer, value) = text.split_once('=')?;
    Some((layer.trim(), value.trim().parse().ok()?)).filter(|(layer, _)| !layer.is_empty())
}

/// Returns the value of the first pattern that a layer's name is or, after a dot, ends with.
fn value_of(patterns: &[String], layer: &str) -> Option<f64> {
    let fits = |end: &str| layer.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    patterns.iter().filter_map(|text| pattern(text)).find(|(end, _)| fits(end)).map(|(_, value)| value)
}

#[cfg(test)]
mod goldens;

#[cfg(test)]
mod tests {
    use super::*;

    // scripts/make_lora_goldens.py, peft 0.21.2
    #[test]
    fn ranks_and_scales_are_those_of_peft() {
        let of = |rslora: bool, has_patterns: bool| {
            let given =
                |patterns: &[&str]| patterns.iter().filter(|_| has_patterns).map(|one| one.to_string()).collect();
            let spec = Spec {
                rank: 8,
                alpha: 16.0,
                rslora,
                rank_pattern: given(&["1.mlp.fc=2", "mlp.fc=6"]),
                alpha_pattern: given(&["mlp.proj = 5"]),
                targets: vec![Target::Fc, Target::Proj],
                whole: Vec::new(),
                blocks: None,
                gain: None,
                init: Init::Uniform,
                std: None,
                dora: false,
            };
            ["0.mlp.fc", "0.mlp.proj", "1.mlp.fc"].map(|name| spec.rank_and_scale(&format!("blocks.{name}")))
        };
        assert_eq!(of(false, false), [(8, 2.0); 3]);
        assert_eq!(of(false, true), [(6, 2.6666666666666665), (8, 0.625), (2, 8.0)]);
        assert_eq!(of(true, false), [(8, 5.65685424949238); 3]);
        assert_eq!(of(true, true), [(6, 6.531972647421809), (8, 1.7677669529663687), (2, 11.31370849898476)]);
        // A pattern fits whole parts of a name alone, and blocks.11 is not block 1.
        assert_eq!(value_of(&["1.mlp.fc=2".into()], "blocks.11.mlp.fc"), None);
    }
}
