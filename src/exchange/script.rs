//! A whole posterior as one TorchScript archive, which Python or C++ runs without bella: normalised pixels `[B, 3, S, S]` in;
//! the logits `[members, B, C]` of every model, their mean probabilities `[B, C]` and their mutual information `[B]` out.
//!
//! The code is written, not traced, so that every number of images fits. It is the forward pass of
//! [`forward`](crate::model::vit::forward) in TorchScript: a value has a leading axis of members, which is 1 until members differ.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use super::lora::updates;
use super::outgoing::Outgoing;
use crate::model::archive::write::{Blueprint, Class, Module, write};
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Readout;
use crate::model::vit::rope::Rope;

/// The name of the archive.
pub const FILE: &str = "posterior.pt";

/// Writes the archive of all models into an existing folder.
///
/// # Errors
/// Fails if the network is no vision transformer, or if the archive cannot be written.
pub fn write_posterior(outgoing: &Outgoing, folder: &Path) -> Result<()> {
    let vit = outgoing.session.vit.as_ref().context("only vision transformers are exported as archives")?;
    let written = !vit.parts.relative && !matches!(vit.parts.rope, Some(Rope::Indexed { .. }));
    ensure!(
        written,
        "{}: the positions of this family (relative, or those of EVA-02) are not written as TorchScript: --to weights or --to peft",
        outgoing.checkpoint().display()
    );
    let mut script = Script::new(outgoing, vit);
    script.forward();
    let names: Vec<&str> = script.tensors.keys().map(String::as_str).collect();
    let class = Class::new("Posterior").parameters(&names);
    let class = class.method("forward", "pixels: Tensor", "Tuple[Tensor, Tensor, Tensor]", &script.lines);
    let root = script
        .tensors
        .iter()
        .fold(Module::new("Posterior"), |module, (name, tensor)| module.parameter(name, &tensor.size(), Kind::Float));
    let blueprint = Blueprint { root, code: class.code() };
    write(&folder.join(FILE), &blueprint, |name, _| {
        script.tensors.get(name).map(Tensor::shallow_clone).with_context(|| format!("the archive has no {name}"))
    })
}

/// The lines of the forward pass and the tensors that they use.
struct Script<'a> {
    vit: &'a Vit,
    members: i64,
    /// The parameters of all members that differ, `[n, …]`, by their canonical names.
    own: BTreeMap<String, Tensor>,
    /// The factors A `[n, r, in]` and B `[n, out, r]` of layers, with the scale.
    factors: BTreeMap<String, (Tensor, Tensor, f64)>,
    frozen: BTreeMap<String, Tensor>,
    normalised: bool,
    /// The tensors of the archive, by their names in it.
    tensors: BTreeMap<String, Tensor>,
    lines: Vec<String>,
}

impl<'a> Script<'a> {
    fn new(outgoing: &Outgoing, vit: &'a Vit) -> Script<'a> {
        let host = |tensor: &Tensor| tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float);
        let (session, layout) = (outgoing.session, outgoing.subspace.layout());
        let head = &session.model.head;
        let mut frozen: BTreeMap<String, Tensor> =
            session.model.base.all().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
        frozen.insert("head.weight".into(), host(&head.weight));
        frozen.insert("head.bias".into(), host(&head.bias));
        let models = 0..outgoing.count();
        let mut factors = BTreeMap::new();
        let rows: Vec<_> = models.clone().map(|model| updates(layout, &outgoing.row(model).squeeze_dim(0))).collect();
        for (index, (layer, first)) in rows.first().into_iter().flatten().enumerate() {
            let stack = |of: &dyn Fn(&super::lora::Lora) -> Tensor| {
                Tensor::stack(&rows.iter().map(|row| of(&row[index].1)).collect::<Vec<_>>(), 0)
            };
            let (a, b) = (stack(&|lora| lora.a.shallow_clone()), stack(&|lora| lora.b.shallow_clone()));
            factors.insert(layer.clone(), (a, b, first.scale));
        }
        let mut own = BTreeMap::new();
        for column in layout.columns.iter().filter(|column| frozen.contains_key(&column.name)) {
            let values: Option<Vec<Tensor>> = models.clone().map(|model| outgoing.value(model, &column.name)).collect();
            if let Some(values) = values {
                own.insert(column.name.clone(), Tensor::stack(&values, 0));
            }
        }
        with_key_bias(&mut frozen, 0);
        with_key_bias(&mut own, 1);
        let members = outgoing.count() as i64;
        let (tensors, lines) = (BTreeMap::new(), Vec::new());
        Script { vit, members, own, factors, frozen, normalised: head.normalised, tensors, lines }
    }

    fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds a tensor and returns the expression of it.
    fn tensor(&mut self, name: &str, tensor: Tensor) -> String {
        let name = name.replace('.', "_");
        self.tensors.insert(name.clone(), tensor.contiguous());
        format!("self.{name}")
    }

    fn has(&self, name: &str) -> bool {
        self.frozen.contains_key(name)
    }

    /// Returns a parameter with a leading axis of members, 1 or n, and `axes` axes of length 1 after it.
    fn param(&mut self, name: &str, axes: usize) -> String {
        let value = match self.own.get(name) {
            Some(own) => own.shallow_clone(),
            None => self.frozen[name].unsqueeze(0),
        };
        let value = (0..axes).fold(value, |value, _| value.unsqueeze(1));
        self.tensor(name, value)
    }

    /// Writes `to = layer(from)` for values `[p, B, T, in]`.
    fn linear(&mut self, to: &str, layer: &str, from: &str) {
        let (weight, bias) = (format!("{layer}.weight"), format!("{layer}.bias"));
        if self.own.contains_key(&weight) || self.own.contains_key(&bias) {
            let weight = self.param(&weight, 1);
            self.line(format!("{to} = torch.matmul({from}, torch.transpose({weight}, 2, 3))"));
            if self.has(&bias) {
                let bias = self.param(&bias, 2);
                self.line(format!("{to} = torch.add({to}, {bias})"));
            }
            return;
        }
        let frozen = self.frozen[&weight].shallow_clone();
        let weight = self.tensor(&weight, frozen);
        let bias = match self.frozen.get(&bias).map(Tensor::shallow_clone) {
            Some(values) => self.tensor(&bias, values),
            None => "None".to_string(),
        };
        let Some((a, b, scale)) = self.factors.get(layer).map(|(a, b, s)| (a.shallow_clone(), b.shallow_clone(), *s))
        else {
            self.line(format!("{to} = torch.linear({from}, {weight}, {bias})"));
            return;
        };
        // The scale is in B, as in bella's own pass.
        let a = self.tensor(&format!("{layer}.A"), a.transpose(1, 2).unsqueeze(1));
        let b = self.tensor(&format!("{layer}.B"), b.transpose(1, 2).unsqueeze(1) * scale);
        self.line(format!("low = torch.matmul(torch.matmul({from}, {a}), {b})"));
        self.line(format!("{to} = torch.add(torch.linear({from}, {weight}, {bias}), low)"));
    }

    /// Writes `to = norm(from)`.
    fn norm(&mut self, to: &str, layer: &str, from: &str) {
        let (weight, bias) = (format!("{layer}.weight"), format!("{layer}.bias"));
        let (width, eps) = (self.frozen[&weight].numel(), self.vit.traits.eps);
        if self.own.contains_key(&weight) || self.own.contains_key(&bias) {
            let (weight, bias) = (self.param(&weight, 2), self.param(&bias, 2));
            self.line(format!("{to} = torch.layer_norm({from}, [{width}], None, None, {eps:e})"));
            self.line(format!("{to} = torch.add(torch.mul({to}, {weight}), {bias})"));
            return;
        }
        let frozen = [&weight, &bias].map(|name| self.frozen[name.as_str()].shallow_clone());
        let [weight, bias] =
            [(weight, &frozen[0]), (bias, &frozen[1])].map(|(name, t)| self.tensor(&name, t.shallow_clone()));
        self.line(format!("{to} = torch.layer_norm({from}, [{width}], {weight}, {bias}, {eps:e})"));
    }

    /// Writes the whole pass.
    fn forward(&mut self) {
        self.embed();
        for block in 0..self.vit.geometry.blocks {
            self.block(&format!("blocks.{block}"));
        }
        self.read_out();
        self.predict();
    }

    /// Writes `x: [p, B, T, d]` of `pixels`.
    fn embed(&mut self) {
        let (vit, size) = (self.vit, self.vit.geometry.grid);
        let patch = vit.geometry.patch;
        self.line("images = torch.size(pixels, 0)");
        self.line(format!("x = torch.reshape(pixels, [images, 3, {size}, {patch}, {size}, {patch}])"));
        self.line("x = torch.permute(x, [0, 2, 4, 1, 3, 5])");
        self.line(format!("x = torch.reshape(x, [1, images, {}, {}])", size * size, 3 * patch * patch));
        self.linear("x", "patch", "x");
        let parts = vit.parts;
        let tokens = ["class_token", "distillation_token", "registers"];
        let embedded = ["patch.weight", "patch.bias", "position"];
        let differ = tokens.iter().chain(&embedded).any(|name| self.own.contains_key(*name));
        if differ {
            self.line(format!("x = torch.expand(x, [{}, -1, -1, -1])", self.members));
        }
        let (lead, rest) = match parts.positioned {
            0 => (&tokens[..0], &tokens[..]),
            all if all == parts.prefix => (&tokens[..], &tokens[3..]),
            _ => (&tokens[..2], &tokens[2..]),
        };
        self.in_front(lead);
        if self.has("position") {
            let position = self.param("position", 1);
            self.line(format!("x = torch.add(x, {position})"));
        }
        if rest.iter().any(|name| self.has(name)) {
            let first = parts.positioned;
            self.line(format!("front = torch.slice(x, 2, 0, {first})"));
            self.line(format!("x = torch.slice(x, 2, {first})"));
            self.in_front(rest);
            self.line("x = torch.cat([front, x], 2)");
        }
        if self.has("ln_pre.weight") {
            self.norm("x", "ln_pre", "x");
        }
    }

    /// Puts the tokens that exist in front of `x`.
    fn in_front(&mut self, names: &[&str]) {
        let mut parts = Vec::new();
        for name in names {
            if self.has(name) {
                let one = self.frozen[*name].dim() == 1;
                let token = self.param(name, if one { 2 } else { 1 });
                parts.push(format!("torch.expand({token}, [torch.size(x, 0), images, -1, -1])"));
            }
        }
        if !parts.is_empty() {
            self.line(format!("x = torch.cat([{}, x], 2)", parts.join(", ")));
        }
    }

    fn block(&mut self, block: &str) {
        let layer = |name: &str| format!("{block}.{name}");
        self.norm("y", &layer("ln_1"), "x");
        self.attend(block);
        self.add_half(&layer("ls_1"));
        self.norm("y", &layer("ln_2"), "x");
        let activation = self.vit.traits.activation.script();
        if self.vit.parts.block.gated {
            self.linear("h", &layer("mlp.gate"), "y");
            self.linear("value", &layer("mlp.fc"), "y");
            self.line(format!("h = torch.mul({activation}, value)"));
        } else {
            self.linear("h", &layer("mlp.fc"), "y");
            self.line(format!("h = {activation}"));
        }
        if self.vit.parts.block.mlp_norm {
            self.norm("h", &layer("mlp.norm"), "h");
        }
        self.linear("y", &layer("mlp.proj"), "h");
        self.add_half(&layer("ls_2"));
    }

    /// Adds half a block's result `y` to `x`, times its learnt scale if there is one.
    fn add_half(&mut self, scale: &str) {
        if self.vit.parts.block.layer_scale {
            let scale = self.param(&format!("{scale}.gamma"), 2);
            self.line(format!("y = torch.mul(y, {scale})"));
        }
        self.line("x = torch.add(x, y)");
    }

    /// Writes `y`, the attention of the normalised tokens `y`.
    fn attend(&mut self, block: &str) {
        let (heads, width) = (self.vit.traits.heads, self.vit.geometry.width);
        self.linear("qkv", &format!("{block}.attn.qkv"), "y");
        self.split("qkv", 3, heads);
        self.line("q = torch.select(qkv, 0, 0)");
        self.line("k = torch.select(qkv, 0, 1)");
        if let Some(rope) = self.vit.parts.rope {
            let grid = self.vit.geometry.grid;
            let table = rope.table(grid, width / heads, (Kind::Float, Device::Cpu));
            let [cos, sin] = table.parts().map(Tensor::shallow_clone);
            let (cos, sin) = (self.tensor("cos", cos), self.tensor("sin", sin));
            self.turn("q", &cos, &sin);
            self.turn("k", &cos, &sin);
        }
        self.line("y = torch.scaled_dot_product_attention(q, k, torch.select(qkv, 0, 2))");
        self.merge("y");
        if self.vit.parts.block.attention_norm {
            self.norm("y", &format!("{block}.attn.norm"), "y");
        }
        self.linear("y", &format!("{block}.attn.proj"), "y");
    }

    /// Splits `name` `[p, B, T, k·d]` into `[k, p, B, heads, T, d / heads]`.
    fn split(&mut self, name: &str, parts: i64, heads: i64) {
        let head = self.vit.geometry.width / heads;
        self.line(format!(
            "{name} = torch.reshape({name}, [torch.size({name}, 0), images, torch.size({name}, 2), {parts}, {heads}, {head}])"
        ));
        self.line(format!("{name} = torch.permute({name}, [3, 0, 1, 4, 2, 5])"));
    }

    /// Joins `name` `[p, B, heads, T, d / heads]` to `[p, B, T, d]`.
    fn merge(&mut self, name: &str) {
        let width = self.vit.geometry.width;
        self.line(format!(
            "{name} = torch.reshape(torch.transpose({name}, 2, 3), [torch.size({name}, 0), images, torch.size({name}, 3), {width}])"
        ));
    }

    /// Rotates the patches of queries or keys `[p, B, heads, T, D]`.
    fn turn(&mut self, name: &str, cos: &str, sin: &str) {
        let (prefix, half) = (self.vit.parts.prefix, self.vit.geometry.width / self.vit.traits.heads / 2);
        self.line(format!("own = torch.slice({name}, 3, {prefix})"));
        self.line(format!(
            "turned = torch.cat([torch.neg(torch.slice(own, 4, {half})), torch.slice(own, 4, 0, {half})], 4)"
        ));
        self.line(format!("own = torch.add(torch.mul(own, {cos}), torch.mul(turned, {sin}))"));
        self.line(format!("{name} = torch.cat([torch.slice({name}, 3, 0, {prefix}), own], 3)"));
    }

    /// Writes `x: [p, B, d]`, the features.
    fn read_out(&mut self) {
        let prefix = self.vit.parts.prefix;
        let mean = |from: &str| format!("torch.mean(torch.slice({from}, 2, {prefix}), [2], True)");
        match self.vit.parts.readout {
            Readout::Class => {
                self.line("x = torch.slice(x, 2, 0, 1)");
                self.norm("x", "ln_post", "x");
            }
            Readout::ClassDistillation => {
                self.line("x = torch.slice(x, 2, 0, 2)");
                self.norm("x", "ln_post", "x");
                self.line("x = torch.unsqueeze(torch.flatten(x, 2, 3), 2)");
            }
            Readout::Mean => {
                self.line(format!("x = {}", mean("x")));
                self.norm("x", "ln_post", "x");
            }
            Readout::NormedMean => {
                self.norm("x", "ln_post", "x");
                self.line(format!("x = {}", mean("x")));
            }
            Readout::ClassMean => {
                self.norm("x", "ln_post", "x");
                self.line(format!("x = torch.cat([torch.slice(x, 2, 0, 1), {}], 3)", mean("x")));
            }
            Readout::Map => self.pool(),
        }
        if self.has("proj.weight") {
            self.linear("x", "proj", "x");
        }
        self.line("x = torch.squeeze(x, 2)");
    }

    /// Writes `x`, the attention of a learnt query over all normalised tokens.
    fn pool(&mut self) {
        let heads = self.vit.traits.heads;
        self.norm("x", "ln_post", "x");
        let query = self.param("pool.query", 2);
        self.linear("q", "pool.q", &query);
        self.linear("kv", "pool.kv", "x");
        let members = if self.own.contains_key("pool.query") || self.own.contains_key("pool.q.weight") {
            self.members.to_string()
        } else {
            "torch.size(kv, 0)".to_string()
        };
        self.line(format!("q = torch.expand(q, [{members}, images, -1, -1])"));
        self.split("q", 1, heads);
        self.split("kv", 2, heads);
        self.line(
            "y = torch.scaled_dot_product_attention(torch.select(q, 0, 0), torch.select(kv, 0, 0), torch.select(kv, 0, 1))",
        );
        self.merge("y");
        self.linear("x", "pool.proj", "y");
        self.norm("y", "pool.ln", "x");
        self.linear("h", "pool.fc", "y");
        let activation = self.vit.traits.activation.script();
        self.line(format!("h = {activation}"));
        self.linear("y", "pool.out", "h");
        self.line("x = torch.add(x, y)");
    }

    /// Writes the logits, the mean probabilities and the mutual information H[mean p] − mean H[p] in nats.
    fn predict(&mut self) {
        if self.normalised {
            self.line("x = torch.div(x, torch.clamp_min(torch.linalg_vector_norm(x, 2., [-1], True), 9.9999999999999998e-13))");
        }
        self.line("x = torch.unsqueeze(x, 2)");
        self.linear("logits", "head", "x");
        self.line(format!("logits = torch.expand(torch.squeeze(logits, 2), [{}, -1, -1])", self.members));
        self.line("each = torch.softmax(logits, -1)");
        self.line("probabilities = torch.mean(each, [0])");
        self.line("total = torch.neg(torch.sum(torch.xlogy(probabilities, probabilities), [-1]))");
        self.line("expected = torch.neg(torch.mean(torch.sum(torch.xlogy(each, each), [-1]), [0]))");
        self.line("return (logits, probabilities, torch.clamp_min(torch.sub(total, expected), 0.))");
    }
}

/// Gives keys a bias of 0 where queries and values have biases and keys none; the biases lie along `axis`.
fn with_key_bias(parameters: &mut BTreeMap<String, Tensor>, axis: i64) {
    let keyless: Vec<String> = parameters.keys().filter(|name| name.ends_with(".qkv.keyless_bias")).cloned().collect();
    for name in keyless {
        if let Some(both) = parameters.remove(&name) {
            let parts = both.chunk(2, axis);
            let three = Tensor::cat(&[&parts[0], &parts[0].zeros_like(), &parts[1]], axis);
            parameters.insert(name.replace("keyless_bias", "bias"), three);
        }
    }
}
