//! Hand-made goldens, and small networks against laplace-torch.

use super::*;

/// A linear classifier without bias, as a layer whose Jacobians are formed, or as a head whose are not.
fn linear(role: Role) -> (Maps, impl Fn(&Tensor) -> Pass) {
    let maps = Maps { maps: vec![Map { block: 0, role, inputs: 2, outputs: 2 }], columns: 0..4 };
    let pass = move |features: &Tensor| {
        let weight = tensor(&[0.4, -0.2, 0.1, 0.3], &[2, 2]).set_requires_grad(true);
        let output = features.matmul(&weight.tr()).unsqueeze(1);
        let logits = output.squeeze_dim(1);
        let source = if role.is_head() { Source::Logits } else { Source::Layer(0) };
        let layers = vec![Layer { outputs: 2, tokens: 1, uses: vec![Use { from: 0, output }] }];
        Pass { logits, layers, sites: vec![Site { input: features.unsqueeze(1), mask: None, source }] }
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
        let site = |input: &Tensor, source| Site { input: input.detach(), mask: None, source };
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

    /// The evidence of all parameters with one token.
    fn evidence(&self, structure: Structure) -> Evidence {
        let labels: Vec<i64> = (0..DATA).map(|i| i % CLASSES).collect();
        self.fitted_to(&labels, Labels::All, (1, Parameters::All, shape(structure))).1
    }

    fn fit_to(
        &self,
        seen: &[i64],
        labels: Labels,
        (tokens, parameters, shape): (i64, Parameters, Shape),
    ) -> (f64, Tensor) {
        let (curvature, evidence) = self.fitted_to(seen, labels, (tokens, parameters, shape));
        let maps = Net::maps(parameters);
        let test = self.pass(&(sines(0.9, &[2, tokens, IN]) * 2), parameters);
        (evidence.at(0.7), Projected::new(&curvature, &maps, &test).unwrap().variance(0.7).unwrap())
    }

    fn fitted_to(
        &self,
        seen: &[i64],
        labels: Labels,
        (tokens, parameters, shape): (i64, Parameters, Shape),
    ) -> (Curvature, Evidence) {
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
        (curvature, evidence)
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
    (Structure::Full, 1, Parameters::LastLayer, -11.0137879345, [5.6812158850, 1.3100501488, 2.3193392784, 1.3100501488, 6.9211970473, 1.0793581161, 2.3193392784, 1.0793581161, 5.9119079177, 3.9626591918, 1.9639443867, 1.5223440378, 1.9639443867, 3.5801855868, 1.9048176428, 1.5223440378, 1.9048176428, 4.0217859357]),
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

/// The same with laplace-torch's Kronecker factors of one sample an image (curvlinops-for-pytorch 3.0.1, `kfac_approx="reduce"`).
#[test]
fn reduced_tokens_equal_curvlinops() {
    #[rustfmt::skip]
    let v = [2.8145953089, -0.6615510326, 1.0641763808, -0.6615510326, 3.1017846449, -0.3782590517, 1.0641763808, -0.3782590517, 2.3924459385, 1.8334086404, -0.0736222828, 0.8443671128, -0.0736222828, 2.3161363624, -0.2701872111, 0.8443671128, -0.2701872111, 2.0996814233];
    let reduced = Shape { tokens: Tokens::Reduce, ..shape(Structure::Kron) };
    let (evidence, variance) = Net::new().fit(TOKENS, Parameters::All, reduced);
    near(&variance, &tensor(&v, &[2, 3, 3]), 1e-4, "reduced tokens");
    assert!((evidence / -30.8221890390 - 1.0).abs() < 1e-4, "{evidence}");
}

/// laplace-torch's `optimize_prior_precision(method="marglik")` on the same networks: structure, precision, evidence.
#[test]
fn the_largest_evidence_is_that_of_laplace_torch() {
    let expected = [
        (Structure::Full, 0.33384224, -17.3757362622),
        (Structure::Diag, 0.70045705, -25.7937054134),
        (Structure::Kron, 0.51196931, -21.8977090938),
    ];
    for (structure, precision, log_evidence) in expected {
        let evidence = Net::new().evidence(structure);
        let found = evidence.maximum();
        assert!((found / precision - 1.0).abs() < 1e-3, "{structure:?}: {found}");
        assert!((evidence.at(found) / log_evidence - 1.0).abs() < 1e-4, "{structure:?}: {}", evidence.at(found));
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
        let sites = [features.unsqueeze(1), ones].map(|input| Site { input, mask: None, source: Source::Logits });
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
            let [means, variances, spreads] = gaussian.moments(&Tensor::cat(&[&at.logits, &v], 1));
            near(&means, &(tensor(&list(&golden["found"][key]["mean"]), &[-1]) * std + mean), 1e-12, key);
            near(&variances, &((v.view([-1]) + sigma * sigma) * std * std), 1e-12, key);
            near(&spreads, &(v.view([-1]) * std * std), 1e-12, key);
        }
    }
}
