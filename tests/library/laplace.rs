//! Laplace approximations: hand-made goldens, laplace-torch on small networks, and a vision transformer against its dense
//! curvature.

use crate::common::{fixture, model, model_of, relatively_near as near};
use bella::base::random::{Purpose, normal, stream};
use bella::data::fields::{Fields, IDS, MASK, PIXELS};
use bella::data::numbers::Scale;
use bella::laplace::curvature::Fit;
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

/// A linear classifier without bias, as a layer whose Jacobians are formed, or as a head whose are not.
fn linear(role: Role) -> (Maps, impl Fn(&Tensor) -> Pass) {
    let maps = Maps { maps: vec![Map { block: 0, role, inputs: 2, outputs: 2 }], columns: 0..4 };
    let pass = move |features: &Tensor| {
        let weight = tensor(&[0.4, -0.2, 0.1, 0.3], &[2, 2]).set_requires_grad(true);
        let output = features.matmul(&weight.tr()).unsqueeze(1);
        let logits = output.squeeze_dim(1);
        let source = if role.is_head() { Source::Logits } else { Source::Layer(0) };
        let layers = vec![Layer { outputs: 2, tokens: 1, uses: vec![Use { from: 0, output }] }];
        Pass { logits, layers, sites: vec![Site { input: features.unsqueeze(1), source }] }
    };
    (maps, pass)
}

/// phi = [[1, .5], [-.3, 1.2], [.8, -.7]], W = [[.4, -.2], [.1, .3]], y = [0, 1, 0], tau = 1, x* = [.2, .9], in NumPy:
/// p = softmax(phi W'), H = sum_n kron(diag(p) - p p', phi phi'), V = J inv(H + I) J', evidence = log p(y) - (slogdet(H + I) +
/// |W|^2) / 2; diag: the diagonal of H; kron: G = sum_n diag(p) - p p', X = mean of phi phi'.
#[test]
fn linear_softmax_goldens() {
    let features = tensor(&[1.0, 0.5, -0.3, 1.2, 0.8, -0.7], &[3, 2]);
    let test = tensor(&[0.2, 0.9], &[1, 2]);
    let theta = tensor(&[0.4, -0.2, 0.1, 0.3], &[4]);
    let goldens = [
        (Structure::Full, [0.6493530771, 0.2006469229], 0.4138357249, -2.3094400583),
        (Structure::Diag, [0.5699589551, 0.0], 0.4127672008, -2.4166319918),
        (Structure::Kron, [0.6486013703, 0.2013986297], 0.4138257915, -2.3087069208),
    ];
    for role in [Role::Up, Role::Head] {
        let (maps, pass) = linear(role);
        for (structure, [own, other], p0, log_evidence) in goldens {
            let what = format!("{structure:?} as {role:?}");
            let train = pass(&features);
            let log_likelihood = log_likelihood(&train.logits.detach(), &[0, 1, 0]);
            assert!((log_likelihood + 1.5160177549278915).abs() < 1e-12);
            let curvature = fitted(&maps, shape(structure), &[train]);
            let at = pass(&test);
            let v = Projected::new(&curvature, &maps, &at).unwrap().variance(1.0).unwrap();
            near(&v, &tensor(&[own, other, other, own], &[1, 2, 2]), 1e-9, &what);
            let p = predictive::probit(&at.logits.detach(), &v.diagonal(0, 1, 2)).exp();
            assert!((p.double_value(&[0, 0]) - p0).abs() < 1e-9, "{what}: {p}");
            let evidence = Evidence::new(&curvature, &theta, log_likelihood).unwrap().at(1.0);
            assert!((evidence - log_evidence).abs() < 1e-9, "{what}: {evidence}");
        }
    }
}

/// The last layer of a network that predicts a number, by laplace-torch 0.3 (scripts/make_laplace_regression_goldens.py): log-likelihood,
/// evidence, and the mean's variance, to which the noise is added. On another scale of the numbers, all is the same in its unit.
#[test]
fn numbers_equal_laplace_torch() {
    let text = std::fs::read_to_string(fixture("laplace_regression.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let list = |value: &serde_json::Value| -> Vec<f64> {
        let flat = |one: &serde_json::Value| match one.as_array() {
            Some(row) => row.iter().map(|one| one.as_f64().unwrap()).collect(),
            None => vec![one.as_f64().unwrap()],
        };
        value.as_array().unwrap().iter().flat_map(flat).collect()
    };
    let (sigma, precision) = (golden["sigma"].as_f64().unwrap(), golden["precision"].as_f64().unwrap());
    let [x, y, tests, weight, bias] = ["x", "y", "tests", "weight", "bias"].map(|key| list(&golden[key]));
    let map = |role, inputs| Map { block: 0, role, inputs, outputs: 1 };
    let maps = Maps { maps: vec![map(Role::Head, 3), map(Role::HeadBias, 1)], columns: 0..4 };
    let pass = |rows: &[f64]| {
        let features = tensor(rows, &[-1, 3]);
        let ones = Tensor::ones([features.size()[0], 1, 1], F64);
        let logits = features.matmul(&tensor(&weight, &[3, 1])) + bias[0];
        let sites = [features.unsqueeze(1), ones].map(|input| Site { input, source: Source::Logits });
        Pass { logits, layers: Vec::new(), sites: sites.into() }
    };
    let theta = Tensor::cat(&[tensor(&weight, &[3]), tensor(&bias, &[1])], 0);
    for scale in [Scale::NONE, Scale { mean: -3.0, std: 5.0 }] {
        let Scale { mean, std } = scale;
        let gaussian = Gaussian { sigma: Some(sigma * std), scale };
        let numbers = tensor(&y, &[-1]) * std + mean;
        for (structure, key) in [(Structure::Full, "full"), (Structure::Diag, "diag"), (Structure::Kron, "kron")] {
            let found = |name: &str| golden["found"][key][name].as_f64().unwrap();
            let train = pass(&x);
            // A density in another unit is divided by it.
            let units = std.ln() * y.len() as f64;
            let likelihood = -gaussian.losses(&train.logits, &numbers).sum(Kind::Double).double_value(&[]);
            assert!((likelihood + units - found("log_likelihood")).abs() < 1e-9, "{key}: {likelihood}");
            let curvature = fitted_by(Labels::Numbers(gaussian.fixed().unwrap()), &maps, shape(structure), &[train]);
            let evidence = Evidence::new(&curvature, &theta, likelihood).unwrap().at(precision);
            assert!((evidence + units - found("evidence")).abs() < 1e-9, "{key}: {evidence}");
            let at = pass(&tests);
            let v = Projected::new(&curvature, &maps, &at).unwrap().variance(precision).unwrap().view([-1, 1]);
            near(&v, &tensor(&list(&golden["found"][key]["variance"]), &[-1, 1]), 1e-9, key);
            let [means, variances] = gaussian.moments(&Tensor::cat(&[&at.logits, &v], 1));
            near(&means, &(tensor(&list(&golden["found"][key]["mean"]), &[-1]) * std + mean), 1e-12, key);
            near(&variances, &((v.view([-1]) + sigma * sigma) * std * std), 1e-12, key);
        }
    }
}

const IN: i64 = 5;
const HIDDEN: i64 = 6;
const CLASSES: i64 = 3;
const DATA: i64 = 12;
const TOKENS: i64 = 4;

/// sin(1.7 k + offset), as in scripts/compare_laplace.py.
fn sines(offset: f64, shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    (Tensor::arange(count, F64) * 1.7 + offset).sin().view(shape)
}

/// The network of scripts/compare_laplace.py: a layer, tanh, the mean over tokens, a head.
struct Net {
    parameters: Vec<Tensor>,
}

impl Net {
    fn new() -> Net {
        let shapes: [&[i64]; 4] = [&[HIDDEN, IN], &[HIDDEN], &[CLASSES, HIDDEN], &[CLASSES]];
        Net { parameters: shapes.iter().enumerate().map(|(i, shape)| sines(i as f64, shape)).collect() }
    }

    fn theta(&self) -> Tensor {
        Tensor::cat(&self.parameters.iter().map(|p| p.reshape([-1])).collect::<Vec<_>>(), 0)
    }

    fn maps(parameters: Parameters) -> Maps {
        let first = HIDDEN * (IN + 1);
        let map = |role, inputs, outputs| Map { block: 0, role, inputs, outputs };
        let head = [map(Role::Head, HIDDEN, CLASSES), map(Role::HeadBias, 1, CLASSES)];
        let all = first + CLASSES * (HIDDEN + 1);
        match parameters {
            Parameters::LastLayer => Maps { maps: head.into(), columns: first..all },
            Parameters::All => {
                let maps = [[map(Role::Up, IN, HIDDEN), map(Role::Up, 1, HIDDEN)], head].concat();
                Maps { maps, columns: 0..all }
            }
        }
    }

    /// `x: [B, T, IN]`.
    fn pass(&self, x: &Tensor, parameters: Parameters) -> Pass {
        let [weight, bias, head, head_bias] = &self.parameters[..] else { panic!("four parameters") };
        let weight = weight.detach().set_requires_grad(true);
        let output = x.matmul(&weight.tr()) + bias;
        let features = output.tanh().mean_dim([1i64].as_slice(), false, Kind::Double);
        let logits = features.matmul(&head.tr()) + head_bias;
        let (batch, tokens) = (x.size()[0], x.size()[1]);
        let site = |input: &Tensor, source| Site { input: input.detach(), source };
        let mut sites =
            vec![site(&features.unsqueeze(1), Source::Logits), site(&Tensor::ones([batch, 1, 1], F64), Source::Logits)];
        let mut layers = Vec::new();
        if parameters == Parameters::All {
            layers.push(Layer { outputs: HIDDEN, tokens, uses: vec![Use { from: 0, output }] });
            sites.insert(0, site(x, Source::Layer(0)));
            sites.insert(1, site(&Tensor::ones([batch, tokens, 1], F64), Source::Layer(0)));
        }
        Pass { logits, layers, sites }
    }

    /// log Z and V at precision 0.7, fitted in batches of 5.
    fn fit(&self, tokens: i64, parameters: Parameters, shape: Shape) -> (f64, Tensor) {
        let labels: Vec<i64> = (0..DATA).map(|i| i % CLASSES).collect();
        self.fit_to(&labels, Labels::All, (tokens, parameters, shape))
    }

    fn fit_to(
        &self,
        seen: &[i64],
        labels: Labels,
        (tokens, parameters, shape): (i64, Parameters, Shape),
    ) -> (f64, Tensor) {
        let x = sines(0.5, &[DATA, tokens, IN]) * 2;
        let passes: Vec<Pass> = [(0, 5), (5, 5), (10, 2)]
            .iter()
            .map(|(start, count)| self.pass(&x.narrow(0, *start, *count), parameters))
            .collect();
        let maps = Net::maps(parameters);
        let curvature = fitted_by(labels, &maps, shape, &passes);
        let logits = Tensor::cat(&passes.iter().map(|pass| pass.logits.detach()).collect::<Vec<_>>(), 0);
        let theta = self.theta().narrow(0, maps.columns.start, maps.parameters());
        let evidence = Evidence::new(&curvature, &theta, log_likelihood(&logits, seen)).unwrap();
        let test = self.pass(&(sines(0.9, &[2, tokens, IN]) * 2), parameters);
        (evidence.at(0.7), Projected::new(&curvature, &maps, &test).unwrap().variance(0.7).unwrap())
    }
}

/// scripts/compare_laplace.py with laplace-torch 0.3, torch 2.11: structure, tokens, parameters, log evidence, V.
#[rustfmt::skip]
const LAPLACE_TORCH: &[(Structure, i64, Parameters, f64, [f64; 18])] = &[
    (Structure::Full, 1, Parameters::All, -19.3732987770, [5.9382872296, 1.3009604490, 2.0320812784, 1.3009604490, 7.2891227826, 0.7104074635, 2.0320812784, 0.7104074635, 6.6287581037, 6.8593103805, 0.3640378204, 1.2964485040, 0.3640378204, 5.3474953772, 0.7187819452, 1.2964485040, 0.7187819452, 6.0661796728]),
    (Structure::Diag, 1, Parameters::All, -25.7937087659, [5.1344601530, 0.2513891406, -1.3612523055, 0.2513891406, 4.7528749056, -0.3574708302, -1.3612523055, -0.3574708302, 5.8566547451, 11.3547653937, -5.8135244832, 0.1921613822, -5.8135244832, 9.6128526118, -2.6534818566, 0.1921613822, -2.6534818566, 6.7525929880]),
    (Structure::Kron, 1, Parameters::All, -22.4172425457, [5.3019426672, 2.4758416922, 1.4454488111, 2.4758416922, 4.7398029135, 2.0705889105, 1.4454488111, 2.0705889105, 5.9167556058, 9.4133342499, -2.4256333260, 2.2668398998, -2.4256333260, 8.6112554028, -0.7971531501, 2.2668398998, -0.7971531501, 7.1171259688]),
    (Structure::Kron, 1, Parameters::LastLayer, -11.7356533507, [4.4662602094, 2.2719542729, 2.5723908299, 2.2719542729, 4.6829300648, 2.3557209745, 2.5723908299, 2.3557209745, 4.3824935078, 3.6211792698, 1.7878119701, 2.0399563763, 1.7878119701, 3.8030216281, 1.8581140181, 2.0399563763, 1.8581140181, 3.5508772219]),
    (Structure::Diag, 1, Parameters::LastLayer, -14.4814997328, [4.1323251043, 0.0, 0.0, 0.0, 4.6786156371, 0.0, 0.0, 0.0, 3.9847441683, 3.2421250648, 0.0, 0.0, 0.0, 3.6857816993, 0.0, 0.0, 0.0, 3.1541724733]),
    (Structure::Full, TOKENS, Parameters::All, -31.8148209095, [1.6692473476, 0.3716496734, 0.7958307932, 0.3716496734, 1.8771157993, 0.2938117225, 0.7958307932, 0.2938117225, 1.7226064660, 1.3890502663, 0.4489915544, 0.6018974405, 0.4489915544, 1.3872893325, 0.4424565925, 0.6018974405, 0.4424565925, 1.4093143430]),
    (Structure::Kron, TOKENS, Parameters::All, -33.5349928348, [2.3486305753, -0.2455388169, 0.9358546413, -0.2455388169, 2.6149234302, -0.0987747814, 0.9358546413, -0.0987747814, 2.1215156489, 1.6325404433, 0.1426524498, 0.7362800841, 0.1426524498, 1.9641718231, 0.0163304187, 0.7362800841, 0.0163304187, 1.7984690487]),
];

#[test]
fn small_networks_equal_laplace_torch() {
    for (structure, tokens, parameters, log_evidence, v) in LAPLACE_TORCH {
        let what = format!("{structure:?}, {tokens} tokens, {parameters:?}");
        let (evidence, variance) = Net::new().fit(*tokens, *parameters, shape(*structure));
        near(&variance, &tensor(v, &[2, 3, 3]), 1e-4, &what);
        let difference = (evidence / log_evidence - 1.0).abs();
        println!("{what}: evidence {difference:.1e}");
        assert!(difference < 1e-4, "{what}: evidence {evidence}");
    }
}

/// The same with the labels (2 i) / 3 mod 3 given as drawn ones, by CurvlinopsEF: structure, parameters, log evidence, V.
#[rustfmt::skip]
const LAPLACE_TORCH_DRAWN: &[(Structure, Parameters, f64, [f64; 18])] = &[
    (Structure::Full, Parameters::All, -47.1238382976, [3.3215251242, 2.9923129862, 2.9937740716, 2.9923129862, 3.7571267305, 2.5988105484, 2.9937740716, 2.5988105484, 3.6929997939, 16.3513110671, -4.2951381349, -1.0162116503, -4.2951381349, 6.0996178104, 3.9030691714, -1.0162116503, 3.9030691714, 3.8573196984]),
    (Structure::Diag, Parameters::All, -66.0903337251, [1.7633319135, 0.0988193815, -0.5390515574, 0.0988193815, 1.4677565729, -0.1431270414, -0.5390515574, -0.1431270414, 2.5818501928, 5.5057592037, -2.3679428405, -1.0079315173, -2.3679428405, 3.3411557254, -0.8445802144, -1.0079315173, -0.8445802144, 3.6343474401]),
    (Structure::Kron, Parameters::All, -55.6213521960, [3.7596567396, 3.0118000331, 2.5117583604, 3.0118000331, 3.5396678807, 2.7506277547, 2.5117583604, 2.7506277547, 4.0877656683, 10.2751747144, -1.6296350181, 0.5094125092, -1.6296350181, 5.4222029308, 2.5467010714, 0.5094125092, 2.5467010714, 4.2720401098]),
    (Structure::Kron, Parameters::LastLayer, -41.3571208358, [3.5065875073, 2.9478836313, 2.8561341735, 2.9478836313, 3.5198101865, 2.8429114944, 2.8561341735, 2.8429114944, 3.6115596443, 2.8218027895, 2.3514150783, 2.2757297484, 2.3514150783, 2.8327103508, 2.2648221871, 2.2757297484, 2.2648221871, 2.9083956807]),
];

#[test]
fn the_curvature_of_drawn_labels_equals_laplace_torch() {
    let seen: Vec<i64> = (0..DATA).map(|i| 2 * i / 3 % CLASSES).collect();
    for (structure, parameters, log_evidence, v) in LAPLACE_TORCH_DRAWN {
        let what = format!("{structure:?}, {parameters:?}, drawn labels");
        let labels = Labels::Given(Tensor::from_slice(&seen).unsqueeze(1));
        let (evidence, variance) = Net::new().fit_to(&seen, labels, (1, *parameters, shape(*structure)));
        near(&variance, &tensor(v, &[2, 3, 3]), 1e-4, &what);
        let difference = (evidence / log_evidence - 1.0).abs();
        assert!(difference < 1e-4, "{what}: evidence {evidence}");
    }
}

/// An entry of H is a sum over images of g_i g_j, of which k draws have the variance Σ_n (E (g_i g_j)² − (E g_i g_j)²) / k. A sum over
/// all labels gives it exactly.
#[test]
fn the_curvature_of_drawn_labels_has_the_exact_one_as_its_expectation() {
    let (net, maps, draws) = (Net::new(), Net::maps(Parameters::All), 4000);
    let x = sines(0.5, &[DATA, 1, IN]) * 2;
    let pass = net.pass(&x, Parameters::All);
    let p = pass.logits.detach().softmax(-1, Kind::Double);
    let size = maps.parameters();
    let [mut mean, mut square] = [(); 2].map(|()| Tensor::zeros([DATA, size, size], F64));
    for label in 0..CLASSES {
        let direction = &p - Tensor::from_slice(&[label]).one_hot(CLASSES);
        let gradients = pass.gradients(&direction).unwrap();
        let rows = pass.sites.iter().zip(&gradients).map(|(s, g)| weight_gradient(&s.input, g).flatten(1, 2));
        let rows = Tensor::cat(&rows.collect::<Vec<_>>(), 1);
        let (products, share) = (rows.unsqueeze(2) * rows.unsqueeze(1), p.select(1, label).view([-1, 1, 1]));
        mean += &products * &share;
        square += products.square() * share;
    }
    let over = |x: Tensor| x.sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
    let deviation = (over(&square - mean.square()) / draws as f64).clamp_min(0.0).sqrt();
    let expected = over(mean);
    let full = |labels| {
        let Curvature::Full(Factor { vectors, values }) =
            fitted_by(labels, &maps, shape(Structure::Full), &[net.pass(&x, Parameters::All)])
        else {
            panic!("not full")
        };
        (&vectors * values).matmul(&vectors.tr())
    };
    near(&full(Labels::All), &expected, 1e-10, "exact");
    let drawn = || Labels::Drawn { draws, seed: 3, particle: 0 };
    let found = full(drawn());
    let off = ((&found - &expected).abs() / (&deviation + 1e-9)).max().double_value(&[]);
    println!("{off:.2} standard deviations at most");
    assert!(off < 5.0 && (&found - &expected).abs().max().double_value(&[]) > 0.0, "{off} standard deviations");
    let relative = (deviation.diagonal(0, 0, 1) / expected.diagonal(0, 0, 1)).max().double_value(&[]);
    assert!(relative < 0.08, "one standard deviation of the least certain entry is {relative} of it");
    // The other structures are made of the same gradients.
    let of = |structure| fitted_by(drawn(), &maps, shape(structure), &[net.pass(&x, Parameters::All)]);
    let Curvature::Diag(diagonal) = of(Structure::Diag) else { panic!("not diagonal") };
    near(&diagonal, &found.diagonal(0, 0, 1), 1e-9, "diag");
    let Curvature::Kron(pairs) = of(Structure::Kron) else { panic!("not kron") };
    let bias = &pairs[1].gradient;
    let start = HIDDEN * IN;
    let block = found.narrow(0, start, HIDDEN).narrow(1, start, HIDDEN);
    near(&(&bias.vectors * &bias.values).matmul(&bias.vectors.tr()), &block, 1e-9, "kron, the bias");
}

#[test]
fn one_token_is_the_same_expanded_and_reduced_and_several_are_not() {
    let of = |tokens, how| Net::new().fit(tokens, Parameters::All, Shape { tokens: how, ..shape(Structure::Kron) });
    let (one, same) = (of(1, Tokens::Expand), of(1, Tokens::Reduce));
    near(&same.1, &one.1, 1e-12, "one token");
    let (several, other) = (of(TOKENS, Tokens::Expand), of(TOKENS, Tokens::Reduce));
    assert!((several.0 - other.0).abs() > 1e-3, "{} {}", several.0, other.0);
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

#[test]
fn jacobians_of_a_vision_transformer_equal_those_of_autograd() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let ours: Vec<Tensor> = setting.pass(&maps, &images).jacobians(|_| true).unwrap();
        let ours = Tensor::cat(&ours.iter().map(|j| j.flatten(2, 3)).collect::<Vec<_>>(), 2);
        near(&ours, &setting.dense(&images).1, 1e-10, "Jacobians");
    }
}

/// Three prompts of 6, 2 and 4 tokens.
fn prompts() -> Fields {
    let ids = [1, 5, 9, 22, 7, 40, 1, 33, 0, 0, 0, 0, 1, 12, 13, 14, 0, 0];
    let mask = Tensor::from_slice(&ids).gt(0).to_kind(Kind::Int64);
    let samples = [(IDS, Tensor::from_slice(&ids)), (MASK, mask)].map(|(name, row)| (name, row.view([1, 3, 6])));
    Fields::new(samples.into())
}

/// Each label word is a use of its own of the output matrix.
#[test]
fn jacobians_of_a_language_network_equal_those_of_autograd() {
    let setting = Setting::language();
    let samples = prompts();
    let maps = Maps::all(&*setting.subspace).unwrap();
    let ours: Vec<Tensor> = setting.pass(&maps, &samples).jacobians(|_| true).unwrap();
    let ours = Tensor::cat(&ours.iter().map(|j| j.flatten(2, 3)).collect::<Vec<_>>(), 2);
    near(&ours, &setting.dense(&samples).1, 1e-10, "Jacobians");
}

/// Compares J δ by forward derivatives with the product of δ and the Jacobians of all classes.
#[track_caller]
fn derivatives_agree(setting: &Setting, parameters: Parameters, samples: &Fields, bound: f64) {
    tch::manual_seed(4);
    let maps = parameters.maps(&*setting.subspace).unwrap();
    let moves = Tensor::randn([5, maps.parameters()], F64).to_kind(setting.model.kind);
    let Setting { model, subspace, theta } = setting;
    let found = Moves { subspace: &**subspace, maps: &maps, theta, moves: &moves }.logits(model, samples).unwrap();
    let (logits, jacobian) = setting.dense(samples);
    let own = jacobian.narrow(2, maps.columns.start, maps.parameters());
    let expected = own.matmul(&moves.to_kind(Kind::Double).tr()).permute([2, 0, 1]);
    near(&found.moved.unwrap(), &expected, bound, "J δ");
    near(&found.value.squeeze_dim(0), &logits, bound, "logits");
}

#[test]
fn forward_derivatives_of_vision_transformers_equal_the_jacobians_of_all_classes() {
    for setting in Setting::all() {
        derivatives_agree(&setting, Parameters::All, &setting.images(3), 1e-10);
    }
    let linear = Setting::new("openai_visual.pt", "[head.linear]");
    derivatives_agree(&linear, Parameters::LastLayer, &linear.images(3), 1e-10);
}

#[test]
fn forward_derivatives_of_a_language_network_equal_the_jacobians_of_all_classes() {
    derivatives_agree(&Setting::language(), Parameters::All, &prompts(), 1e-10);
}

#[test]
fn forward_derivatives_of_a_residual_network_equal_the_jacobians_of_all_classes() {
    let setting = Setting::module();
    derivatives_agree(&setting, Parameters::LastLayer, &setting.images(3), 1e-5);
}

/// What a layer's last token alone would give, as in the authors' code for language networks (bayesian_lora), lacks what earlier tokens
/// add to the logits through attention: all of the last layers is there, but neither keys, values nor earlier blocks are.
#[test]
fn the_last_token_alone_lacks_what_attention_brings() {
    let setting = Setting::language();
    let ids = [1, 5, 9, 22, 7, 40, 1, 33, 12, 13, 14, 8];
    let mask = Tensor::ones([12], (Kind::Int64, Device::Cpu));
    let samples = [(IDS, Tensor::from_slice(&ids)), (MASK, mask)].map(|(name, row)| (name, row.view([1, 2, 6])));
    let samples = Fields::new(samples.into());
    let maps = Maps::all(&*setting.subspace).unwrap();
    let pass = setting.pass(&maps, &samples);
    let direction = Tensor::zeros([2, 3], F64);
    let _ = direction.select(1, 0).fill_(1.0);
    let gradients = pass.gradients(&direction).unwrap();
    let mut missing = std::collections::BTreeMap::<&str, f64>::new();
    for ((map, site), gradient) in maps.maps.iter().zip(&pass.sites).zip(&gradients) {
        let last = |of: &Tensor| of.narrow(1, of.size()[1] - 1, 1);
        let whole = weight_gradient(&site.input, gradient);
        let alone = weight_gradient(&last(&site.input), &last(gradient));
        let share = ((&whole - alone).norm() / whole.norm()).double_value(&[]);
        let name = setting.subspace.layout().blocks[map.block].name.as_str();
        let most = missing.entry(name).or_default();
        *most = most.max(share);
    }
    for (name, share) in missing.iter().filter(|(name, _)| **name != "lm_head") {
        let is_whole = name.starts_with("blocks.1.") && !name.ends_with("attn.k") && !name.ends_with("attn.v");
        assert!(if is_whole { *share < 1e-12 } else { *share > 1e-2 }, "{name}: {share:.1e} missing");
    }
    assert!(missing.len() > 14, "{missing:?}");
}

#[test]
fn full_curvature_of_a_vision_transformer_equals_the_dense_one() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let (logits, jacobian) = setting.dense(&images);
        let p = logits.softmax(-1, Kind::Double);
        let lambda = p.diag_embed(0, 1, 2) - p.unsqueeze(2).bmm(&p.unsqueeze(1));
        let h = jacobian.transpose(1, 2).bmm(&lambda.bmm(&jacobian)).sum_dim_intlist(
            [0i64].as_slice(),
            false,
            Kind::Double,
        );
        let curvature = fitted(&maps, shape(Structure::Full), &[setting.pass(&maps, &images)]);
        let Curvature::Full(Factor { vectors, values }) = &curvature else { panic!("not full") };
        near(&(vectors * values).matmul(&vectors.tr()), &h, 1e-9, "full");
        let Curvature::Diag(diagonal) = fitted(&maps, shape(Structure::Diag), &[setting.pass(&maps, &images)]) else {
            panic!("not diagonal")
        };
        near(&diagonal, &h.diagonal(0, 0, 1), 1e-9, "diag");
        let identity = Tensor::eye(maps.parameters(), F64) * 0.3;
        let inverse = (&h + identity).inverse();
        let v = jacobian.matmul(&inverse).bmm(&jacobian.transpose(1, 2));
        let ours = Projected::new(&curvature, &maps, &setting.pass(&maps, &images)).unwrap().variance(0.3).unwrap();
        near(&ours, &v, 1e-8, "V of full");
    }
}

/// H of a Kronecker approximation, `[P, P]`, formed.
fn formed(curvature: &Curvature) -> Tensor {
    let Curvature::Kron(pairs) = curvature else { panic!("not kron") };
    let matrix = |f: &Factor| (&f.vectors * &f.values).matmul(&f.vectors.tr());
    let blocks: Vec<Tensor> = pairs.iter().map(|pair| matrix(&pair.gradient).kron(&matrix(&pair.input))).collect();
    Tensor::block_diag(&blocks)
}

#[test]
fn kron_of_a_vision_transformer_predicts_as_its_formed_matrix() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let jacobian = setting.dense(&images).1;
        // All sides dense; wide ones at low rank.
        for wide in [512, 8] {
            for tokens in [Tokens::Expand, Tokens::Reduce] {
                let shape = Shape { structure: Structure::Kron, tokens, wide, kept: 3 };
                let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
                let precision = formed(&curvature) + Tensor::eye(maps.parameters(), F64) * 0.3;
                let v = jacobian.matmul(&precision.inverse()).bmm(&jacobian.transpose(1, 2));
                let pass = setting.pass(&maps, &images);
                let ours = Projected::new(&curvature, &maps, &pass).unwrap().variance(0.3).unwrap();
                near(&ours, &v, 1e-8, &format!("V, wide {wide}, {tokens:?}"));
                let evidence = Evidence::new(&curvature, &setting.theta.get(0), -1.0).unwrap().at(0.3);
                let log_det = precision.logdet().double_value(&[]) - maps.parameters() as f64 * 0.3f64.ln();
                let penalty = 0.3 * setting.theta.square().sum(Kind::Double).double_value(&[]);
                assert!((evidence + 1.0 + 0.5 * (log_det + penalty)).abs() < 1e-8 * log_det.abs(), "{evidence}");
            }
        }
    }
}

#[test]
fn drawn_weights_have_the_covariance_of_the_formed_matrix() {
    let setting = Setting::new("timm_scripted.pt", "[head.checkpoint]");
    let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
    for (structure, wide) in [(Structure::Kron, 8), (Structure::Kron, 512), (Structure::Diag, 8), (Structure::Full, 8)]
    {
        let shape = Shape { structure, tokens: Tokens::Expand, wide, kept: 3 };
        let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
        // The map from noise to deviation is a matrix M with M Mᵀ (H + τ) = 1: probe it with Jᵀ, since it is symmetric.
        let jacobian = setting.dense(&images).1.reshape([-1, maps.parameters()]);
        let rows: Vec<Tensor> = (0..jacobian.size()[0]).map(|i| curvature.deviation(0.3, &jacobian.get(i))).collect();
        let rows = Tensor::stack(&rows, 0);
        let v = rows.matmul(&rows.tr());
        let projected =
            Projected::new(&curvature, &maps, &setting.pass(&maps, &images)).unwrap().variance(0.3).unwrap();
        let classes = projected.size()[1];
        let blocks: Vec<Tensor> =
            (0..3).map(|n| v.narrow(0, n * classes, classes).narrow(1, n * classes, classes)).collect();
        near(&Tensor::stack(&blocks, 0), &projected, 1e-8, &format!("{structure:?}, wide {wide}"));
    }
}

#[test]
fn the_last_layer_of_a_vision_transformer_equals_its_formed_jacobian() {
    let setting = Setting::new("openai_visual.pt", "[head.linear]");
    let (maps, images) = (Maps::last_layer(&*setting.subspace).unwrap(), setting.images(4));
    let jacobian = setting.dense(&images).1.narrow(2, maps.columns.start, maps.parameters());
    for wide in [512, 8] {
        let shape = Shape { structure: Structure::Kron, tokens: Tokens::Expand, wide, kept: 3 };
        let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
        let inverse = (formed(&curvature) + Tensor::eye(maps.parameters(), F64) * 0.3).inverse();
        let v = jacobian.matmul(&inverse).bmm(&jacobian.transpose(1, 2));
        let pass = setting.pass(&maps, &images);
        let ours = Projected::new(&curvature, &maps, &pass).unwrap().variance(0.3).unwrap();
        near(&ours, &v, 1e-8, &format!("last layer, wide {wide}"));
    }
    let frozen = Setting::new("timm_scripted.pt", "[head.checkpoint]");
    let error = Maps::last_layer(&*frozen.subspace).unwrap_err().to_string();
    assert!(error.contains("does not train its head"), "{error}");
}

/// The processor seconds in user mode that `work` takes.
fn user_seconds(work: impl Fn()) -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields = stat.rsplit(')').next().unwrap();
        fields.split_whitespace().nth(11).unwrap().parse::<f64>().unwrap() / 100.0
    };
    let before = ticks();
    work();
    ticks() - before
}

/// What a fit and a prediction of `results/laplace.md` cost beside a training step and an ensemble.
#[test]
#[ignore = "prints processor seconds; BELLA_VIT is an archive of scripts/make_random_vit.py --architecture vit-b-32"]
fn the_cost_with_345_classes() {
    let archive = std::env::var("BELLA_VIT").unwrap();
    let text = format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {archive:?}\nnormalize = \"clip\"\n[head.linear]\n[data.digits]\n\
         [subspace.low-rank]\nrank = 4\n[method.laplace]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 8\n"
    );
    let (model, subspace) = model_of(&text, Kind::Float, 345);
    let theta = subspace.initial(1, 0).unwrap().unsqueeze(0);
    let (layout, side) = (subspace.layout(), model.image_side());
    let images = |count: i64| {
        let bytes = Tensor::randint(256, [1, count, 3, side, side], (Kind::Uint8, Device::Cpu));
        model.preparation.prepare(&Fields::of(PIXELS, bytes))
    };
    let (maps, batch) = (Maps::all(&*subspace).unwrap(), images(8));
    let step = || {
        let leaves = layout.leaves(&theta, Kind::Float, true);
        let logits = model.logits(&subspace.weights(&model.base, &leaves), &batch).squeeze_dim(0);
        let loss = logits.cross_entropy_for_logits(&Tensor::arange(8, (Kind::Int64, Device::Cpu)));
        Tensor::f_run_backward(&[loss], &leaves, false, false).unwrap();
    };
    step();
    let step = user_seconds(step);
    let fit = |draws: i64| {
        user_seconds(|| {
            let pass = Pass::new(&model, &*subspace, &maps, &theta, &batch).unwrap();
            let labels = Labels::Drawn { draws, seed: 1, particle: 0 };
            Fit::new(&maps, shape(Structure::Kron), labels, Device::Cpu).add(&pass).unwrap();
        })
    };
    let (one, five) = (fit(1), fit(5));
    let exact = one + (five - one) / 4.0 * 343.0;
    println!(
        "8 images: step {step:.2} s, fit by 1 drawn label {one:.2} s ({:.2} x), exact {exact:.1} s ({:.0} x) by 5 draws",
        one / step,
        exact / step
    );
    let (few, draws) = (images(1), 64);
    let rows = Tensor::randn([draws, layout.parameters()], (Kind::Float, Device::Cpu)) * 0.01;
    let ensemble = user_seconds(|| {
        let _ = tch::no_grad(|| {
            let leaves = layout.leaves(&(&rows + &theta), Kind::Float, false);
            model.logits(&subspace.weights(&model.base, &leaves), &few)
        });
    });
    let tangent = user_seconds(|| {
        let moves = Moves { subspace: &*subspace, maps: &maps, theta: &theta, moves: &rows };
        moves.logits(&model, &few).unwrap();
    });
    println!("1 image, 64 draws: ensemble {ensemble:.2} s, tangents {tangent:.2} s ({:.2} x)", tangent / ensemble);
}
