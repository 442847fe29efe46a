//! Laplace approximations: hand-made goldens, laplace-torch on small networks, and networks against their dense curvature.

mod curvature;
mod jacobians;
mod small;

use crate::common::{fixture, model, model_of, relatively_near as near};
use bella::base::random::{Purpose, normal, stream};
use bella::data::fields::{Fields, IDS, MASK, PIXELS};
use bella::data::numbers::Scale;
use bella::laplace::fit::Fit;
use bella::laplace::pass::{Layer, Map, Maps, Pass, Role, Site, Source, Use, weight_gradient};
use bella::laplace::tangents::Moves;
use bella::laplace::variance::Projected;
use bella::laplace::{Curvature, Evidence, Labels, Parameters, Shape, Structure, Tokens, predictive};
use bella::model::Model;
use bella::model::head::Gaussian;
use bella::posterior::curvature::Factor;
use bella::subspace::Subspace;
use tch::{Device, Kind, Tensor};

const F64: (Kind, Device) = (Kind::Double, Device::Cpu);

fn tensor(values: &[f64], shape: &[i64]) -> Tensor {
    Tensor::from_slice(values).view(shape)
}

fn shape(structure: Structure) -> Shape {
    Shape { structure, tokens: Tokens::Expand, wide: 512, kept: 10 }
}

fn fitted(maps: &Maps, shape: Shape, passes: &[Pass]) -> Curvature {
    fitted_by(Labels::All, maps, shape, passes)
}

fn fitted_by(labels: Labels, maps: &Maps, shape: Shape, passes: &[Pass]) -> Curvature {
    let mut fit = Fit::new(maps, shape, labels, Device::Cpu);
    passes.iter().for_each(|pass| fit.add(pass).unwrap());
    fit.finish().unwrap()
}

fn log_likelihood(logits: &Tensor, labels: &[i64]) -> f64 {
    let picked = logits.log_softmax(-1, Kind::Double).gather(1, &Tensor::from_slice(labels).unsqueeze(1), false);
    picked.sum(Kind::Double).double_value(&[])
}

/// A vision transformer in f64 with a particle that has moved in every column.
struct Setting {
    model: Model,
    subspace: Box<dyn Subspace>,
    theta: Tensor,
}

impl Setting {
    fn new(archive: &str, head: &str) -> Setting {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n{head}\n[data.digits]\n\
             [subspace.low-rank]\nrank = 2\ntargets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"]\n\
             [method.laplace]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n",
            fixture(archive)
        );
        Setting::of(&text)
    }

    /// A language network with updates of every layer, the output matrix among them, which is also that of the embeddings.
    fn language() -> Setting {
        let folder = fixture("language").join("llama-linear");
        Setting::of(&format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {folder:?}\n[head.label-words]\n\
             [data.jsonl]\nroot = \"x\"\nprompt = \"{{text}}\"\nlabels = [\"yes\", \"no\", \"A\"]\n\
             [subspace.low-rank]\nrank = 2\ntargets = [\"attn.q\", \"attn.k\", \"attn.v\", \"attn.proj\", \"mlp.gate\", \
             \"mlp.fc\", \"mlp.proj\", \"lm_head\"]\n\
             [method.laplace]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n"
        ))
    }

    /// A residual network, which computes in f32, with a trained head.
    fn module() -> Setting {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nkind = \"module\"\nimage_size = 8\nnormalize = \"imagenet\"\n\
             [head.linear]\n[data.digits]\n[subspace.last-layer]\n\
             [method.laplace]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n",
            fixture("module").join("residual.pt")
        );
        Setting::of_kind(&text, Kind::Float)
    }

    fn of(text: &str) -> Setting {
        Setting::of_kind(text, Kind::Double)
    }

    fn of_kind(text: &str, kind: Kind) -> Setting {
        let (model, subspace) = model(text, kind);
        let start = subspace.initial(1, 0).unwrap().to_kind(Kind::Double);
        let mut rng = stream(5, Purpose::Noise, &[]);
        let noise: Vec<f64> = (0..start.numel()).map(|_| 0.1 * normal(&mut rng)).collect();
        let theta = (start + Tensor::from_slice(&noise)).unsqueeze(0).to_kind(kind);
        Setting { model, subspace, theta }
    }

    fn all() -> [Setting; 2] {
        [Setting::new("timm_scripted.pt", "[head.checkpoint]"), Setting::new("openai_visual.pt", "[head.linear]")]
    }

    fn images(&self, count: i64) -> Fields {
        use rand::RngExt;
        let mut rng = stream(6, Purpose::Check, &[]);
        let bytes: Vec<u8> = (0..count * 3 * 20 * 20).map(|_| rng.random()).collect();
        self.model.preparation.prepare(&Fields::of(PIXELS, Tensor::from_slice(&bytes).view([1, count, 3, 20, 20])))
    }

    fn pass(&self, maps: &Maps, images: &Fields) -> Pass {
        Pass::new(&self.model, &*self.subspace, maps, &self.theta, images).unwrap()
    }

    /// Logits `[B, C]`, and Jacobians `[B, C, P]` by one backward to the leaves a logit.
    fn dense(&self, images: &Fields) -> (Tensor, Tensor) {
        let layout = self.subspace.layout();
        let leaves = layout.leaves(&self.theta, self.model.kind, true);
        let logits = self.model.logits(&self.subspace.weights(&self.model.base, &leaves), images).squeeze_dim(0);
        let (batch, classes) = logits.size2().unwrap();
        let rows = Tensor::zeros([batch * classes, layout.parameters()], F64);
        for at in 0..batch * classes {
            let root = logits.get(at / classes).get(at % classes);
            let gradients = Tensor::f_run_backward(&[root], &leaves, true, false).unwrap();
            layout.gather(&gradients, &rows.narrow(0, at, 1));
        }
        (logits.detach(), rows.view([batch, classes, -1]))
    }
}

/// Three prompts of 6, 2 and 4 tokens.
fn prompts() -> Fields {
    let ids = [1, 5, 9, 22, 7, 40, 1, 33, 0, 0, 0, 0, 1, 12, 13, 14, 0, 0];
    let mask = Tensor::from_slice(&ids).gt(0).to_kind(Kind::Int64);
    let samples = [(IDS, Tensor::from_slice(&ids)), (MASK, mask)].map(|(name, row)| (name, row.view([1, 3, 6])));
    Fields::new(samples.into())
}
