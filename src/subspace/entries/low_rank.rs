//! `[subspace.low-rank]`: W_i = W_0 + (alpha / rank) · B_i A_i on chosen linear layers (Bella, equation 3; Hu et al.
//! 2021, arXiv 2106.09685). A starts Kaiming-uniform (a = √5), that is U(±1/√in), and B starts at 0. With `gain` g, A starts
//! Xavier-uniform, U(±g √(6 / (rank + in))): the knob by which LoRA-Ensemble (Mühlematter et al. 2024, arXiv 2405.14438) sets
//! how different its members become.

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use crate::model::head::{Head, Training};
use crate::model::network::low_rank::LowRank;
use crate::model::network::{Network, Parameters, Slot, SlotKind, Weights};
use crate::schema::{Choice, Reader, settings, words};
use crate::subspace::layout::{initial_head, push_head, uniform};
use crate::subspace::{Combined, Entry, Layout, Shape, Subspace, SubspaceSpec};

pub static ENTRY: Entry = Entry {
    key: "low-rank",
    about: "W_0 + (alpha / rank) B A on chosen linear layers; W_0 frozen and shared",
    read: |reader| Box::new(Spec::read(reader)),
};

words! {
    /// A linear layer of each block, or all layers of a kind in a module.
    enum Target {
        Qkv = "attn.qkv",
        Query = "attn.q",
        Key = "attn.k",
        Value = "attn.v",
        AttentionProj = "attn.proj",
        Gate = "mlp.gate",
        Fc = "mlp.fc",
        Proj = "mlp.proj",
        Output = "lm_head",
        Pooler = "pooler",
        FirstProjector = "projector.linear_1",
        SecondProjector = "projector.linear_2",
        VisionQkv = "vision.attn.qkv",
        VisionAttentionProj = "vision.attn.proj",
        VisionFc = "vision.mlp.fc",
        VisionProj = "vision.mlp.proj",
        Linear = "linear",
        Pointwise = "pointwise",
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
        /// one that sees images, `projector.*` and `vision.*`; of a text encoder, `pooler`; of a module, `linear` and
        /// `pointwise` (1 × 1 convolutions).
        targets: Vec<Target> = vec![Target::Fc, Target::Proj];
        /// Blocks that get updates, such as `"6-11"`; all by default.
        blocks: Option<String>;
        /// Gain g of Xavier's start of A, U(±g √(6 / (rank + in))), for more diverse particles; without it U(±1/√in).
        gain: Option<f64>, in above(0.0);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        if self.targets.is_empty() {
            reader.problem("targets", "must name at least one layer");
        }
        if let Some(Err(error)) = self.blocks.as_deref().map(|text| parse_blocks(text, usize::MAX)) {
            reader.problem("blocks", format!("{error}"));
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

    /// Returns the layers that get an update, in the order of the forward pass.
    fn slots(&self, network: &dyn Network) -> Result<Vec<Slot>> {
        let (blocks, slots) = (self.blocks(network.blocks())?, network.slots());
        for target in &self.targets {
            let known = slots.iter().any(|slot| slot.target == target.word() && slot.kind != SlotKind::Other);
            ensure!(
                known,
                "subspace.low-rank.targets: the checkpoint has no linear layer `{target}`{}",
                others(&slots)
            );
        }
        let wanted = |slot: &Slot| {
            // A layer outside of the blocks belongs to none of them.
            let chosen = network.block_of(slot).is_none_or(|block| blocks.contains(&block));
            chosen && self.targets.iter().any(|target| target.word() == slot.target)
        };
        Ok(slots.into_iter().filter(wanted).collect())
    }

    fn blocks(&self, available: usize) -> Result<Vec<usize>> {
        match &self.blocks {
            None => Ok((0..available).collect()),
            Some(text) => {
                parse_blocks(text, available).with_context(|| format!("subspace.low-rank.blocks = \"{text}\""))
            }
        }
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

/// Returns the targets that slots have, for messages.
fn others(slots: &[Slot]) -> String {
    let mut known: Vec<&str> = slots.iter().filter(|s| s.kind != SlotKind::Other).map(|s| s.target.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    if known.is_empty() { String::new() } else { format!(": it has {}", known.join(", ")) }
}

/// Returns the numbers in a list such as "0-5,11"; each must be below `available`.
fn parse_blocks(text: &str, available: usize) -> Result<Vec<usize>> {
    let mut blocks = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) else {
            bail!("`{part}` is no block number or range: write for example \"6-11\" or \"0,3,5-7\"");
        };
        ensure!(first <= last, "the range {part} runs backwards");
        ensure!(last < available, "block {last} does not exist: the checkpoint has blocks 0 to {}", available - 1);
        ensure!(last < 10_000, "block {last} does not exist");
        blocks.extend(first..=last);
    }
    blocks.sort_unstable();
    blocks.dedup();
    Ok(blocks)
}

impl SubspaceSpec for Spec {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn equal_starts(&self, _: Training) -> bool {
        false
    }

    fn rank(&self) -> Option<i64> {
        Some(self.rank as i64)
    }

    fn build(&self, network: &dyn Network, _: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        let mut layout = Layout::default();
        let mut layers = Vec::new();
        for Slot { name, inputs, outputs, .. } in self.slots(network)? {
            let (rank, scale) = self.rank_and_scale(&name);
            let key = if value_of(&self.rank_pattern, &name).is_some() { "rank_pattern" } else { "rank" };
            ensure!(
                rank <= outputs.min(inputs),
                "subspace.low-rank.{key} = {rank}: {name} is {outputs} x {inputs}, its rank cannot exceed {}",
                outputs.min(inputs)
            );
            let start = layout.parameters();
            layout.push_linear(format!("{name}.A"), [rank, inputs]);
            layout.push(format!("{name}.B"), &[outputs, rank]);
            layout.close_block(&name, start, Shape::LowRank { rank, inputs, outputs, scale });
            layers.push(name);
        }
        self.check_patterns(&layers)?;
        let trained_head = head.training == Training::Always;
        if trained_head {
            push_head(&mut layout, head);
        }
        let head = trained_head.then(|| head.to(tch::Device::Cpu, Kind::Float));
        Ok(Box::new(LowRankSubspace { layout, layers, gain: self.gain, head }))
    }
}

struct LowRankSubspace {
    layout: Layout,
    layers: Vec<String>,
    /// Xavier's gain at the start of A; Kaiming's start without it.
    gain: Option<f64>,
    /// The head whose shape particles train, if they train their own.
    head: Option<Head>,
}

impl Subspace for LowRankSubspace {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor> {
        let mut parts = Vec::new();
        for (index, column) in self.layout.columns.iter().take(2 * self.layers.len()).enumerate() {
            let count = column.count() as usize;
            parts.push(if index % 2 == 0 {
                let (rank, inputs) = (column.shape[0] as f64, column.shape[1] as f64);
                let bound = self.gain.map_or(1.0 / inputs.sqrt(), |gain| gain * (6.0 / (rank + inputs)).sqrt());
                Tensor::from_slice(&uniform(seed, particle, index as u64, count, bound))
            } else {
                Tensor::zeros([count as i64], (Kind::Float, tch::Device::Cpu))
            });
        }
        if let Some(head) = &self.head {
            parts.push(initial_head(seed, particle, head));
        }
        Ok(Tensor::cat(&parts, 0))
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        for ((layer, block), factors) in self.layers.iter().zip(&self.layout.blocks).zip(leaves.chunks_exact(2)) {
            let Shape::LowRank { scale, .. } = block.shape else {
                unreachable!("layer {layer} of a low-rank subspace is low-rank")
            };
            let (a, b) = (factors[0].shallow_clone(), factors[1].shallow_clone());
            weights.update(layer, LowRank { a, b, scale });
        }
        if self.head.is_some() {
            let own = &leaves[2 * self.layers.len()..];
            weights.replace("head.weight", own[0].shallow_clone());
            weights.replace("head.bias", own[1].shallow_clone());
        }
        weights
    }

    fn origin(&self) -> Tensor {
        Tensor::zeros([self.layout.parameters()], (Kind::Float, tch::Device::Cpu))
    }

    /// Combines particles into points of rank n·r. A stacks the A of all particles vertically, and B stacks theirs
    /// horizontally, each times its coefficient.
    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        crate::subspace::updates::check(theta, coefficients)?;
        let (particles, points) = (theta.size()[0], coefficients.size()[0]);
        let mut layout = Layout::default();
        let mut parts = Vec::new();
        for (layer, block) in self.layers.iter().zip(&self.layout.blocks) {
            let Shape::LowRank { rank, inputs, outputs, scale } = block.shape else {
                unreachable!("layer {layer} of a low-rank subspace is low-rank")
            };
            let (start, joint) = (layout.parameters(), particles * rank);
            layout.push_linear(format!("{layer}.A"), [joint, inputs]);
            layout.push(format!("{layer}.B"), &[outputs, joint]);
            layout.close_block(layer, start, Shape::LowRank { rank: joint, inputs, outputs, scale });
            let a = theta.narrow(1, block.columns.start, rank * inputs).reshape([1, joint * inputs]);
            let b = theta.narrow(1, block.columns.start + rank * inputs, outputs * rank);
            let b = b.reshape([1, particles, outputs, rank]) * coefficients.view([points, particles, 1, 1]);
            parts.push(a.expand([points, -1], false));
            parts.push(b.permute([0, 2, 1, 3]).reshape([points, outputs * joint]));
        }
        if let (Some(head), Some(block)) = (&self.head, self.layout.blocks.last()) {
            push_head(&mut layout, head);
            let length = block.columns.end - block.columns.start;
            parts.push(coefficients.matmul(&theta.narrow(1, block.columns.start, length)));
        }
        let head = self.head.as_ref().map(Head::again);
        let subspace = Box::new(LowRankSubspace { layout, layers: self.layers.clone(), gain: self.gain, head });
        Ok(Combined { subspace, theta: Tensor::cat(&parts, 1) })
    }

    fn again(&self) -> Box<dyn Subspace> {
        let (layout, layers) = (self.layout.clone(), self.layers.clone());
        let (gain, head) = (self.gain, self.head.as_ref().map(Head::again));
        Box::new(LowRankSubspace { layout, layers, gain, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torch: nn.init.kaiming_uniform_(A, a=5 ** .5) has the bound 1/√in, nn.init.xavier_uniform_(A, gain=10) has
    /// 10 √(6 / (rank + in)). Without a gain the draws are those of earlier versions.
    #[test]
    fn the_gain_scales_the_start_of_a_alone() {
        let start = |gain: Option<f64>| {
            let (mut layout, shape) = (Layout::default(), [2, 50]);
            layout.push_linear("layer.A", shape);
            layout.push("layer.B", &[30, 2]);
            layout.close_block("layer", 0, Shape::LowRank { rank: 2, inputs: 50, outputs: 30, scale: 1.0 });
            let subspace = LowRankSubspace { layout, layers: vec!["layer".into()], gain, head: None };
            let theta = subspace.initial(3, 1).unwrap();
            assert_eq!(theta.narrow(0, 100, 60).abs().max().double_value(&[]), 0.0, "B starts at 0");
            theta.narrow(0, 0, 100)
        };
        let usual = start(None);
        assert!(usual.equal(&Tensor::from_slice(&uniform(3, 1, 0, 100, 1.0 / 50f64.sqrt()))));
        let bound = 10.0 * (6.0f64 / 52.0).sqrt();
        let ratio = bound * 50f64.sqrt();
        assert!(start(Some(10.0)).allclose(&(usual * ratio), 1e-5, 1e-6, false));
        let largest = start(Some(10.0)).abs().max().double_value(&[]);
        assert!((0.9..=1.0).contains(&(largest / bound)), "{largest} of {bound}");
    }

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
                blocks: None,
                gain: None,
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

    #[test]
    fn block_lists() {
        assert_eq!(parse_blocks("6-8, 0,7", 12).unwrap(), vec![0, 6, 7, 8]);
        for (text, rule) in [
            ("6-", "no block number"),
            ("8-6", "runs backwards"),
            ("12", "block 12 does not exist: the checkpoint has blocks 0 to 11"),
        ] {
            let error = parse_blocks(text, 12).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
