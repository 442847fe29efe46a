//! Densities of the uncertainty of right and of wrong predictions. A good measure of uncertainty separates the two.

use anyhow::Result;

use super::material::{Drawing, Material, Measured};
use super::readings::distinct;
use crate::metrics::{Average, Scores};
use crate::plot::{Axis, Chart, Entry, Layer, Panel, Swatch, Ticks, small_columns};

const RIGHT: usize = 2;
const WRONG: usize = 3;
const POINTS: usize = 160;
/// The number of images of a kind below which they are drawn as dots, since a smooth curve would be made of the bandwidth.
const FEWEST: usize = 30;
/// The number of panels after which further ones are left out, because nobody would look at them.
const MOST_PANELS: usize = 24;

/// The quantile of all values at which the horizontal axes begin, so that a few values near 0 do not squeeze the rest, and
/// the smallest value there.
const LEAST_SHARE: f64 = 0.005;
const LEAST: f64 = 1e-7;

pub fn mutual_information(material: &Material) -> Result<Option<Drawing>> {
    draw(material, "mutual information (nats)", "Mutual information (what the members do not agree on)", |scores| {
        scores.mutual_information()
    })
}

pub fn entropy(material: &Material) -> Result<Option<Drawing>> {
    draw(material, "predictive entropy (nats)", "Entropy of the mean probabilities", |scores| {
        Some(&scores.uncertainty.predictive_entropy)
    })
}

fn draw(
    material: &Material,
    axis: &str,
    subject: &str,
    quantity: for<'a> fn(&'a Scores) -> Option<&'a [f64]>,
) -> Result<Option<Drawing>> {
    let (mut panels, places) = panels_of(material, axis, quantity);
    if panels.is_empty() {
        return Ok(None);
    }
    let mut notes = vec![];
    if panels.len() > MOST_PANELS {
        notes.push(format!("{} further panels are not shown.", panels.len() - MOST_PANELS));
        panels.truncate(MOST_PANELS);
    }
    let (legend, columns) = (legend(&panels), small_columns(&panels));
    let chart = Chart { legend, panels, columns, plot_height: 150, notes, ..Chart::default() };
    let caption = format!(
        "{subject} over the rightly and the wrongly classified test images (class of the averaged logits), all seeds of a \
         method together, on a logarithmic axis: the density of the decimal logarithm, each with area 1 (Gaussian kernel, \
         bandwidth after Silverman); fewer than {FEWEST} images are dots. Values below the axis stand at its left end. From the \
         saved predictions of: {}.",
        places.join("; ")
    );
    Drawing::of(&chart, caption)
}

/// Returns the entries of the legend that some panel has.
fn legend(panels: &[Panel]) -> Vec<Entry> {
    let entry = |name: &str, paint, swatch| Entry { name: name.into(), paint, swatch };
    let has = |swatch: Swatch, paint: usize| {
        let fits = |layer: &Layer| match layer {
            Layer::Area { paint: own, .. } => swatch == Swatch::Area && *own == paint,
            Layer::Dots { paint: own, .. } => swatch == Swatch::Dot && *own == paint,
            _ => false,
        };
        panels.iter().flat_map(|panel| &panel.layers).any(fits)
    };
    let kinds = [
        entry("right predictions", RIGHT, Swatch::Area),
        entry("wrong predictions", WRONG, Swatch::Area),
        entry("single right predictions", RIGHT, Swatch::Dot),
        entry("single wrong predictions", WRONG, Swatch::Dot),
    ];
    kinds.into_iter().filter(|entry| has(entry.swatch, entry.paint)).collect()
}

/// Returns the panels of all test conditions, and the names of these conditions.
fn panels_of(
    material: &Material,
    axis: &str,
    quantity: for<'a> fn(&'a Scores) -> Option<&'a [f64]>,
) -> (Vec<Panel>, Vec<String>) {
    let with: Vec<_> = material.measured.iter().filter(|one| quantity(&one.scores).is_some()).collect();
    let places = distinct(with.iter().map(|one| one.place()));
    let mut panels = vec![];
    for place in &places {
        let here: Vec<_> = with.iter().copied().filter(|one| one.place() == *place).collect();
        let all: Vec<f64> = here.iter().flat_map(|one| quantity(&one.scores).unwrap_or_default()).copied().collect();
        let Some(high) = all.iter().copied().reduce(f64::max).filter(|high| *high > LEAST) else { continue };
        let low = quantile(&all, LEAST_SHARE).unwrap_or(LEAST).clamp(LEAST, (high / 3.0).max(LEAST));
        for series in distinct(here.iter().map(|one| one.series)) {
            let own: Vec<_> = here.iter().copied().filter(|one| one.series == series).collect();
            let name = material.names.get(series).map_or("", String::as_str);
            let unit = if places.len() > 1 { format!("; {place}") } else { String::new() };
            let shown = Shown { axis, unit: &unit, of: quantity, low, high };
            panels.extend(panel(&own, &shown, name.to_string()));
        }
    }
    (panels, places)
}

/// The uncertainty that a panel shows.
struct Shown<'a> {
    /// The title of the horizontal axis.
    axis: &'a str,
    /// The end of the title of the vertical axis.
    unit: &'a str,
    of: for<'b> fn(&'b Scores) -> Option<&'b [f64]>,
    /// The range of the horizontal axis.
    low: f64,
    high: f64,
}

impl Shown<'_> {
    /// Returns the decimal logarithms for the predictions that are right, or for those that are wrong.
    fn logarithms(&self, runs: &[&Measured], wanted: bool) -> Vec<f64> {
        let of_run = |run: &&Measured| {
            let right = &run.scores.averaged(Average::Logit).correct;
            let values = (self.of)(&run.scores).unwrap_or_default().iter().zip(right);
            let chosen = values.filter(|(_, right)| **right == wanted);
            chosen.map(|(value, _)| value.max(self.low).log10()).collect::<Vec<_>>()
        };
        runs.iter().flat_map(of_run).collect()
    }
}

/// Returns one panel. `None` if there is neither a right nor a wrong prediction.
fn panel(runs: &[&Measured], shown: &Shown, title: String) -> Option<Panel> {
    let Shown { axis, unit, low, high, .. } = *shown;
    let kinds = [(RIGHT, shown.logarithms(runs, true)), (WRONG, shown.logarithms(runs, false))];
    let curve = |values: &[f64]| {
        let curve = density(values, (low.log10(), high.log10()), POINTS).filter(|_| values.len() >= FEWEST)?;
        Some(curve.into_iter().map(|(x, height)| (10f64.powf(x), height)).collect::<Vec<_>>())
    };
    let curves = kinds.each_ref().map(|(_, values)| curve(values));
    let top = curves.iter().flatten().flatten().fold(0.0f64, |top, (_, height)| top.max(*height));
    let has_curves = curves.iter().any(Option::is_some);
    let mut layers = vec![];
    for (rank, ((paint, values), curve)) in kinds.iter().zip(curves).enumerate() {
        layers.push(match curve {
            Some(points) => Layer::Area { paint: *paint, points },
            None => Layer::Dots { paint: *paint, points: dots(values, rank, has_curves.then_some(top)) },
        });
    }
    let [right, wrong] = kinds.map(|(_, values)| values.len());
    let (what, ticks) = match has_curves {
        true => ("density; ", Ticks::between(0.0, 1.05 * top)),
        false => ("", Ticks::Names(vec!["right".into(), "wrong".into()])),
    };
    (right + wrong > 0).then(|| Panel {
        title,
        x: Axis::new(axis, Ticks::Log(low, high)),
        y: Axis::new(format!("{what}{right} right, {wrong} wrong{unit}"), ticks),
        layers,
        values: false,
    })
}

/// Returns dots at the values of one of the two kinds, by their decimal logarithms: of one value above each other, and those of the two
/// kinds apart. `top` is the height of the highest curve, if there is one.
fn dots(values: &[f64], rank: usize, top: Option<f64>) -> Vec<(f64, f64)> {
    let height = |at: usize| match top {
        Some(top) => top * (0.12 + 0.4 * rank as f64 + 0.06 * (at % 5) as f64),
        None => rank as f64 + 0.12 * ((at % 5) as f64 - 2.0),
    };
    values.iter().enumerate().map(|(at, value)| (10f64.powf(*value), height(at))).collect()
}

/// The number of cells into which the samples are counted before smoothing. The cells are much narrower than any
/// bandwidth that is drawn.
const CELLS: usize = 4096;

/// Returns the points `(value, density)` of a Gaussian kernel density estimate between two values. The bandwidth is that
/// of Silverman (1986, eq. 3.31: 0.9 · min(sd, IQR / 1.34) · n^(−1/5)). Values must be finite.
///
/// Returns `None` for fewer than two values and for values without spread, which have no density.
fn density(values: &[f64], (low, high): (f64, f64), points: usize) -> Option<Vec<(f64, f64)>> {
    let bandwidth = bandwidth(values)?;
    let (first, top) =
        values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let cell = (top - first) / CELLS as f64;
    let mut counts = vec![0usize; CELLS];
    for value in values {
        counts[(((value - first) / cell) as usize).min(CELLS - 1)] += 1;
    }
    let scale = 1.0 / (values.len() as f64 * bandwidth * std::f64::consts::TAU.sqrt());
    let kernel = |distance: f64| (-0.5 * (distance / bandwidth).powi(2)).exp();
    let at = |x: f64| {
        let centers = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let terms = centers.map(|(place, count)| *count as f64 * kernel(x - first - (place as f64 + 0.5) * cell));
        scale * terms.sum::<f64>()
    };
    let last = points.max(2) - 1;
    Some((0..=last).map(|place| low + (high - low) * place as f64 / last as f64).map(|x| (x, at(x))).collect())
}

fn bandwidth(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    let range = (quantile(values, 0.75)? - quantile(values, 0.25)?) / 1.34;
    let spread = if range > 0.0 { deviation.min(range) } else { deviation };
    // Rounding makes the mean of equal values differ from them, so their spread is not exactly 0.
    (spread > 1e-12 * mean.abs() && spread.is_finite()).then(|| 0.9 * spread * count.powf(-0.2))
}

/// Returns the quantile of the values at the share `at`, by the nearest rank. `None` if there are no values.
fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(at * last as f64).round() as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integral(curve: &[(f64, f64)]) -> f64 {
        curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
    }

    #[test]
    fn integrates_to_one() {
        let uniform: Vec<f64> = (0..2000).map(|i| f64::from(i) / 2000.0 - 3.0).collect();
        let curve = density(&uniform, (-4.0, -1.0), 2000).unwrap();
        assert!((integral(&curve) - 1.0).abs() < 2e-3, "{}", integral(&curve));
    }

    // scipy.stats.gaussian_kde(x, bw_method=h / numpy.std(x, ddof=1)) with Silverman's h of the formula above, scipy 1.17.1:
    // x = [-4, -3.5, -3.2, -3, -2.9, -2, -1.5], at -4.5, -3, -1.5
    const KDE: [f64; 3] = [0.09448621047541955, 0.4225862295522229, 0.18322190426474855];

    #[test]
    fn values_are_those_of_scipy() {
        let values = [-4.0, -3.5, -3.2, -3.0, -2.9, -2.0, -1.5];
        let curve = density(&values, (-4.5, -1.5), 3).unwrap();
        for ((_, found), expected) in curve.iter().zip(KDE) {
            assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
        }
    }

    #[test]
    fn values_without_spread_have_no_density() {
        assert!(density(&[0.3; 10], (0.0, 1.0), 10).is_none() && density(&[1.0], (0.0, 1.0), 10).is_none());
        assert!(density(&[], (0.0, 1.0), 10).is_none());
    }
}
