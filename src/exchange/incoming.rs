//! Adapters that PEFT has trained, read as low-rank updates of canonical layers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use crate::base::hash::{file_sha256, text_sha256};
use crate::base::tensor_file::State;
use crate::exchange::beside::{self, Beside};
use crate::exchange::formats::peft::{CHECKPOINT, CONFIG, LENGTHS, ROOT, WEIGHTS};
use crate::exchange::lora::Lora;
use crate::exchange::modules::{OUT_PROJ, Part, Target, packages};
use crate::exchange::settings::{MERGE, Settings};
use crate::exchange::{expected, modules};
use crate::model::Backbone;
use crate::model::families::Layers;
use crate::model::language::EMBEDDING;
use crate::model::network::Slot;
use crate::model::recognition::Package;

/// The classifiers of packages' models, which an adapter may have trained.
const CLASSIFIERS: [&str; 4] = ["classifier", "classifier.out_proj", "head", SCORE];

/// The classifier of a decoder, which has no bias.
const SCORE: &str = "score";

/// The text that only the names of the layers of the first block contain.
const FIRST_BLOCK: &str = "blocks.0.";

/// The component of the paths of text towers, which stand beside towers of images.
const TEXTS: &str = "text_model";

/// The checkpoint that the adapters update.
pub struct Base<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
    pub tower: &'a dyn Backbone,
    /// The classes of the data set.
    pub classes: &'a [String],
    /// Whether the run takes the classifier among the weights of a copy, and has no other head in its place.
    pub takes_head: bool,
}

/// One adapter.
pub struct Adapter {
    /// The updates by the canonical names of their layers.
    pub updates: BTreeMap<String, Lora>,
    /// The parameters of layers that were trained whole, by their canonical names, f32 on the CPU.
    pub whole: BTreeMap<String, Tensor>,
    /// The trained classifier, in the adapter or beside it: weight `[C, d]` and bias `[C]`, f32.
    pub head: Option<[Tensor; 2]>,
    /// The SHA-256 of the folder's files.
    pub sha256: String,
}

/// A module of a package's model, and the canonical rows in it.
struct Place<'a> {
    /// The end of the module's path.
    path: String,
    /// The component of the paths of another part of the network, whose layers may have the same names.
    stranger: &'static str,
    slot: &'a Slot,
    part: Part,
    /// The number of times that PEFT adds the update.
    times: f64,
}

/// The updates of one canonical layer so far, each with its first row.
type Parts = BTreeMap<String, Vec<(i64, Lora)>>;

/// Reads an adapter of a checkpoint.
///
/// # Errors
/// Fails if the folder holds no LoRA adapter, if it is of another checkpoint, or if it adapts what bella does not.
pub fn read(folder: &Path, base: &Base) -> Result<Adapter> {
    let shown = folder.display().to_string();
    let config = Settings::read(folder)?;
    let path = folder.join(WEIGHTS);
    ensure!(
        path.is_file(),
        "{shown}: has no {WEIGHTS}: save the adapter with save_pretrained(…, safe_serialization=True), since bella opens no pickle"
    );
    let state = State::read(&path)?;
    if let Some(theirs) = state.described(CHECKPOINT) {
        ensure!(
            theirs == base.sha256,
            "{shown}: is an adapter of another checkpoint than {}: its SHA-256 was {theirs}",
            base.path.display()
        );
    }
    let files = [folder.join(CONFIG), path].into_iter().chain(expected::head_beside(folder));
    let hashes = files.map(|file| file_sha256(&file, "import")).collect::<Result<Vec<_>>>()?;
    let reading = Reading { config: &config, state: &state, base };
    let Trained { updates, whole, head } = reading.all().with_context(|| shown.clone())?;
    // A classifier of the adapter's own is the trained one.
    let head = if head.is_some() { head } else { expected::read_head(folder)? };
    Ok(Adapter { updates, whole, head, sha256: text_sha256(&hashes.concat()) })
}

/// The tensors of an adapter, before the parts of each layer are joined.
#[derive(Default)]
struct Stored {
    parts: Parts,
    /// The parameters that lie whole beside the factors, by their canonical names.
    beside: BTreeMap<String, Beside>,
    /// The classifier's `weight` and `bias`, as far as the adapter has them.
    head: BTreeMap<&'static str, Tensor>,
}

/// The trained parts of an adapter: updates by the names of their layers, whole parameters by their own names, and the weight `[C, D]` and
/// bias `[C]` of a classifier, if there is one.
struct Trained {
    updates: BTreeMap<String, Lora>,
    whole: BTreeMap<String, Tensor>,
    head: Option<[Tensor; 2]>,
}

struct Reading<'a> {
    config: &'a Settings,
    state: &'a State,
    base: &'a Base<'a>,
}

impl Reading<'_> {
    fn all(&self) -> Result<Trained> {
        let slots = self.slots();
        let Stored { parts, beside, mut head } = self.stored(&self.places(&slots)?)?;
        let mut updates = BTreeMap::new();
        for (layer, mut parts) in parts {
            parts.sort_by_key(|(row, _)| *row);
            let outputs = slots.iter().find(|slot| slot.name == layer).map_or(0, |slot| slot.outputs);
            let update = Lora::joined(&parts, outputs)?.reduced();
            if !update.is_zero() {
                updates.insert(layer, update);
            }
        }
        let whole = beside::trained(&beside, &updates, self.base.tower, self.base.path)?;
        match (head.remove("weight"), head.remove("bias")) {
            (Some(weight), Some(bias)) => {
                self.expect_classifier()?;
                Ok(Trained { updates, whole, head: Some([weight, bias]) })
            }
            (None, None) => Ok(Trained { updates, whole, head: None }),
            (weight, _) => {
                let (has, lacks) = if weight.is_some() { ("weight", "bias") } else { ("bias", "weight") };
                bail!("has the {has} of a classifier without its {lacks}: store both, or remove it")
            }
        }
    }

    /// Checks that the package's model has a classifier, which a trained one replaces, or is a decoder, whose last token a new one reads.
    fn expect_classifier(&self) -> Result<()> {
        self.config.expect_texts()?;
        let targets = self.targets()?;
        ensure!(
            targets.iter().any(|target| target.classifier().is_some() || target.decoder().is_some()),
            "holds a classifier, which reads other features than those of {}: the network that it was trained with has a layer between \
             these and the classifier that the adapter does not hold, or reads other tokens: merge it with PEFT's merge_and_unload, save \
             the whole network, and give that folder as checkpoint.path with [head.checkpoint]",
            self.base.path.display()
        );
        Ok(())
    }

    /// Returns the models of packages that the checkpoint's names fit.
    fn targets(&self) -> Result<Vec<Target>> {
        let (naming, names) = (self.base.tower.naming(), self.base.tower.names());
        let target = |package: &Package| Target::new(Some(*package), self.base.path, naming, &names);
        packages(naming, &names).iter().map(target).collect()
    }

    /// Returns the layers of the network, then those of blocks that the checkpoint has and the network does not run.
    fn slots(&self) -> Vec<Slot> {
        let tower = self.base.tower;
        let (mut slots, names) = (tower.network().slots(), tower.names());
        let first: Vec<Slot> = slots.iter().filter(|slot| slot.name.contains(FIRST_BLOCK)).cloned().collect();
        for slot in first {
            let of_block =
                |block| Slot { name: slot.name.replace(FIRST_BLOCK, &format!("blocks.{block}.")), ..slot.clone() };
            let stored = |slot: &Slot| !names.modules(&slot.name, slot.outputs).is_empty();
            let idle = (1..).map(of_block).take_while(stored).filter(|slot| self.is_idle(slot));
            slots.extend(idle.collect::<Vec<_>>());
        }
        slots
    }

    /// Returns whether the network does not run a layer of the checkpoint, so that an update of it changes nothing.
    fn is_idle(&self, slot: &Slot) -> bool {
        self.base.tower.base().get(&format!("{}.weight", slot.name)).is_none()
    }

    /// Sorts the adapter's tensors by the layers that they belong to.
    fn stored(&self, places: &[Place]) -> Result<Stored> {
        let (mut stored, mut layers, mut strangers) = (Stored::default(), 0, Vec::new());
        for name in self.state.names() {
            let inner = inner(&name);
            let value = self.state.get(&name)?;
            ensure!(
                !value.is_floating_point() || bool::try_from(value.isfinite().all())?,
                "{WEIGHTS}: {name} holds values that are NaN or infinite: the adapter is damaged or diverged; export it again"
            );
            if let Some(path) = inner.strip_suffix(".lora_A.weight") {
                layers += 1;
                match found(places, path) {
                    Some(place) if self.is_idle(place.slot) => {}
                    Some(place) => self.add(place, path, &name, &mut stored.parts)?,
                    None => strangers.push(path.to_string()),
                }
            } else if let Some((module, part)) = of_classifier(&inner) {
                self.expect_last_token(&name, module, part)?;
                let value = value.to_kind(Kind::Float);
                if module == SCORE && part == "weight" && value.dim() == 2 {
                    stored.head.insert("bias", Tensor::zeros([value.size()[0]], tch::kind::FLOAT_CPU));
                }
                let former = stored.head.insert(part, value.shallow_clone());
                // With bias = "all", PEFT stores the trained one twice.
                let is_one = former.is_none_or(|former| former.size() == value.size() && former.equal(&value));
                ensure!(is_one, "{name} is a second {part} of a classifier: keep the trained one");
            } else if let Some(own) = canonical(places, &inner) {
                let beside = self.beside(name, &own)?;
                stored.beside.insert(own, beside);
            } else if let Some(end) = [".lora_B.weight", LENGTHS].into_iter().find(|end| inner.ends_with(end)) {
                self.expect_a(&name, end)?;
            } else {
                bail!("holds {inner}, which is neither a low-rank factor of a linear layer nor a classifier: {MERGE}");
            }
        }
        ensure!(layers > 0, "holds no low-rank factors (`….lora_A.weight`)");
        self.expect_known(&strangers, layers, places)?;
        Ok(stored)
    }

    /// Refuses layers of the adapter that the checkpoint does not have, among all of its `layers`.
    fn expect_known(&self, strangers: &[String], layers: usize, places: &[Place]) -> Result<()> {
        let Some(first) = strangers.first() else { return Ok(()) };
        let like = places.first().map_or("", |place| place.path.as_str());
        bail!(
            "{} of its {layers} layers match none of {}: {first}; they are called like {like}: if the adapter is of this network, {MERGE}",
            strangers.len(),
            self.base.path.display()
        );
    }

    /// Checks that a part of a classifier of a decoder, by its module, is of one that reads the last token of a text.
    fn expect_last_token(&self, name: &str, module: &str, part: &str) -> Result<()> {
        ensure!(
            module != SCORE || part != "bias",
            "holds {name}: a `{SCORE}` with a bias classifies every token (…ForTokenClassification), and bella reads the last one"
        );
        ensure!(
            module == SCORE || self.targets()?.iter().all(|target| target.decoder().is_none()),
            "holds {name}, which is no classifier of a decoder's last token (`{SCORE}`): {MERGE}"
        );
        Ok(())
    }

    /// Checks that a B or a magnitude vector, by the end of its name, is not alone.
    fn expect_a(&self, name: &str, end: &str) -> Result<()> {
        let other = name.replace(end.trim_end_matches(".weight"), ".lora_A");
        let other = if end == LENGTHS { format!("{other}.weight") } else { other };
        let what = if end == LENGTHS { "magnitude vector" } else { "B" };
        ensure!(
            self.state.has(&other),
            "{WEIGHTS}: {name} is a {what} without its A, {other}: store both, or remove it"
        );
        Ok(())
    }

    /// Returns every module that an adapter may name, in all packages and generations that the checkpoint's names fit.
    fn places<'s>(&self, slots: &'s [Slot]) -> Result<Vec<Place<'s>>> {
        let tower = self.base.tower;
        let names = tower.names();
        let gated = tower.base().get("blocks.0.mlp.gate.weight").is_some();
        let mut places = Vec::new();
        for target in self.targets()? {
            target.expect_adapters(&names)?;
            for slot in slots {
                let stranger = target.class.map_or(TEXTS, |class| class.stranger(slot));
                for module in modules::of(slot, &target, &names, gated)? {
                    places.push(Place { path: module.end, stranger, slot, part: module.part, times: module.times });
                }
            }
        }
        Ok(places)
    }

    /// Reads a tensor of the adapter that takes the place of the checkpoint's parameter `own`.
    fn beside(&self, stored: String, own: &str) -> Result<Beside> {
        // GPT-2 stores some matrices transposed.
        let targets = self.targets()?;
        let is_turned = targets.iter().filter_map(|target| target.class).any(|class| match &class.layers {
            Layers::Named(names) => names.is_turned(own),
            Layers::Styles(_) => false,
        });
        let value = self.state.get(&stored)?;
        let value = if is_turned && value.dim() == 2 { value.tr() } else { value };
        Beside::of(stored, &value, self.base.tower.base().get(own), self.base.path)
    }

    /// Returns the magnitude vector `[outputs]` of the module `path`, whose A is called `name`; `None` for plain LoRA.
    fn lengths(&self, path: &str, name: &str, outputs: i64) -> Result<Option<Tensor>> {
        let other = name.replace(".lora_A.weight", LENGTHS);
        if !self.config.uses_dora() {
            ensure!(
                !self.state.has(&other),
                "{WEIGHTS}: has {other}, but {CONFIG} says use_dora = false: set it, or remove the tensor"
            );
            return Ok(None);
        }
        ensure!(
            self.state.has(&other),
            "{WEIGHTS}: use_dora = true, but {path} has no {other}: export the adapter again"
        );
        let lengths = self.state.get(&other)?.to_kind(Kind::Float);
        ensure!(lengths.numel() as i64 == outputs, "{other} has shape {:?}, not [{outputs}]", lengths.size());
        Ok(Some(lengths.reshape([-1])))
    }

    /// Returns A and B of the module `path`, whose weights have this shape. `name` is that of A.
    fn factors(&self, path: &str, name: &str, [outputs, inputs]: [i64; 2]) -> Result<[Tensor; 2]> {
        let other = name.replace(".lora_A.", ".lora_B.");
        let factor = |name: &str| Ok::<_, anyhow::Error>(self.state.get(name)?.to_kind(Kind::Float));
        let (a, b) = (factor(name)?, factor(&other).with_context(|| format!("{path} has an A without a B"))?);
        let fits = a.dim() == 2 && b.dim() == 2 && a.size()[0] == b.size()[1];
        ensure!(fits, "{path} has factors of shapes {:?} and {:?}", a.size(), b.size());
        ensure!(
            (b.size()[0], a.size()[1]) == (outputs, inputs),
            "is an adapter of another network than {}: its {path} is {} x {}, the checkpoint's {outputs} x {inputs}",
            self.base.path.display(),
            b.size()[0],
            a.size()[1]
        );
        Ok([a, b])
    }

    /// Adds the update of the module `path`.
    fn add(&self, place: &Place, path: &str, name: &str, parts: &mut Parts) -> Result<()> {
        let slot = place.slot;
        let outputs = match place.part {
            Part::Whole => slot.outputs,
            Part::Third(_) => slot.outputs / 3,
            Part::Half(_) => 2 * slot.outputs,
        };
        let [a, b] = self.factors(path, name, [outputs, slot.inputs])?;
        let scale = self.config.scale(path.trim_end_matches(OUT_PROJ), a.size()[0])?;
        let magnitude = self.lengths(path, name, outputs)?;
        ensure!(
            magnitude.is_none() || place.times == 1.0,
            "{path}: PEFT adds its update {} times, which with use_dora is no DoRA of the layer: import the merged model",
            place.times
        );
        let update = Lora { a, b, scale, magnitude }.divided(1.0 / place.times);
        let layers = [("mlp.gate", 0), ("mlp.fc", 1)];
        match place.part {
            Part::Whole => parts.entry(slot.name.clone()).or_default().push((0, update)),
            Part::Third(index) => {
                parts.entry(slot.name.clone()).or_default().push((index * slot.outputs / 3, update));
            }
            Part::Half(_) => {
                let block = format!("blocks.{}", slot.stage);
                for (layer, half) in layers {
                    let own = update.rows(half * slot.outputs, slot.outputs).without_others();
                    parts.entry(format!("{block}.{layer}")).or_default().push((0, own));
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of a tensor of an adapter without what PEFT puts around it.
pub fn inner(name: &str) -> String {
    name.strip_prefix(ROOT).unwrap_or(name).replace(".default.", ".").replace(".modules_to_save.", ".")
}

/// Returns the classifier that a parameter belongs to, and which part of it it is, `weight` or `bias`.
fn of_classifier(name: &str) -> Option<(&str, &'static str)> {
    let (module, part) = name.rsplit_once('.')?;
    let part = ["weight", "bias"].into_iter().find(|known| *known == part)?;
    CLASSIFIERS.contains(&module).then_some((module, part))
}

/// Returns the canonical name of a parameter of the checkpoint that PEFT may store whole beside factors: the embeddings, or a layer.
fn canonical(places: &[Place], name: &str) -> Option<String> {
    let (path, part) = name.rsplit_once('.').filter(|(_, part)| ["weight", "bias"].contains(part))?;
    let path = path.strip_suffix(".base_layer").unwrap_or(path);
    if path.rsplit('.').next() == Some("embed_tokens") {
        return Some(format!("{EMBEDDING}.{part}"));
    }
    let place = found(places, path).filter(|place| place.part == Part::Whole)?;
    Some(format!("{}.{part}", place.slot.name))
}

/// Returns the place of a module. Paths of a text tower end like those of an image tower.
fn found<'p, 's>(places: &'p [Place<'s>], path: &str) -> Option<&'p Place<'s>> {
    let known = |place: &&Place| {
        let is_strange = path.split('.').any(|component| component == place.stranger);
        !is_strange && (path == place.path || path.ends_with(&format!(".{}", place.path)))
    };
    places.iter().find(known)
}
