//! Split conformal prediction: sets of classes that hold the true one with probability at least 1 − α, for images that
//! are exchangeable with the calibration images (Vovk et al. 2005; Angelopoulos & Bates 2023).
//!
//! A score s(x, y) says how badly class y conforms to the prediction for x. The threshold q is the ⌈(n + 1)(1 − α)⌉-th
//! smallest of the scores of n calibration images with their labels, and the set of x is {y : s(x, y) ≤ q}. A new score
//! is an entry in [`SCORES`].

mod calibrate;
mod coverage;
mod rule;

pub use calibrate::{Calibrated, Plan, TooFew, threshold};
pub use coverage::{Coverage, Part, Stratum, measures, of_column};
pub use rule::{APS, Alpha, Draw, Regularisation, Rule, SCORES, Score, Thresholds};

#[cfg(test)]
mod tests {
    use super::calibrate::threshold;
    use super::*;
    use crate::base::random::{Purpose, below, stream, uniform};
    use crate::metrics::Average;
    use crate::predictions::{Predictions, Shape};

    const FIXED: Rule = Rule {
        score: &rule::LAC,
        thresholds: Thresholds::Shared,
        draw: Draw::Fixed,
        regularisation: Regularisation { penalty: 0.05, rank: 2 },
        seed: 0,
    };

    /// The images of `scripts/make_conformal_goldens.py`, from the first to before the last.
    fn images(first: usize, last: usize) -> Predictions {
        let logit = |i: usize, c: usize| (1.5 * (1.7 * (i * c) as f64 + i as f64 + c as f64).sin()) as f32;
        let rows: Vec<Vec<f32>> = (first..last).map(|i| (0..5).map(|c| logit(i, c)).collect()).collect();
        let label = |(at, row): (usize, &Vec<f32>)| {
            let mut order: Vec<usize> = (0..5).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            let i = first + at;
            order[if i % 3 == 2 {
                1
            } else if i % 5 == 4 {
                2
            } else {
                0
            }] as u32
        };
        let labels = rows.iter().enumerate().map(label).collect();
        Predictions::new(Shape { members: 1, samples: last - first, classes: 5 }, rows.concat(), labels).unwrap()
    }

    fn alpha(value: f64) -> Alpha {
        value.to_string().parse().unwrap()
    }

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "{got}, not {want}");
    }

    /// TorchCP 1.2.1, thresholds and sets with u = 0, as `scripts/make_conformal_goldens.py` prints them.
    #[test]
    fn fixed_sets_are_those_of_the_reference() {
        let golden: [(&Score, f64, f64, [&[usize]; 4]); 6] = [
            (&rule::LAC, 0.1, 0.9420418170952075, [&[1, 3, 4, 2, 0], &[2, 1, 3], &[4, 3, 2, 1, 0], &[4, 1, 0]]),
            (&rule::LAC, 0.25, 0.7300831686602132, [&[1], &[2], &[4], &[4, 1]]),
            (&rule::APS, 0.1, 0.8459769030055909, [&[1, 3, 4, 2], &[2, 1, 3], &[4, 3, 2, 1], &[4, 1, 0]]),
            (&rule::APS, 0.25, 0.4447990340882227, [&[1, 3], &[2], &[4, 3], &[4, 1]]),
            (&rule::RAPS, 0.1, 0.895976903005591, [&[1, 3, 4, 2], &[2, 1, 3], &[4, 3, 2, 1], &[4, 1, 0]]),
            (&rule::RAPS, 0.25, 0.4447990340882227, [&[1, 3], &[2], &[4, 3], &[4, 1]]),
        ];
        let (held_out, test) = (images(0, 16), images(16, 20));
        for (score, level, threshold, sets) in golden {
            let rule = Rule { score, ..FIXED };
            for one in Calibrated::all(&[rule], &[alpha(level)], &held_out).unwrap() {
                one.thresholds.iter().for_each(|found| close(*found, threshold));
                assert_eq!(one.sets(&test, 0).unwrap(), sets, "{} {level}", score.key);
            }
        }
    }

    /// Thresholds and sets with the draws u_i = frac(0.37 (i + 1)), as `scripts/make_conformal_goldens.py` prints them.
    #[test]
    fn drawn_sets_are_those_of_the_reference() {
        let golden: [(&Score, f64, f64, [&[usize]; 4]); 4] = [
            (&rule::APS, 0.1, 0.8952413584746646, [&[1, 3, 4, 2], &[2, 1, 3], &[4, 3, 2, 1, 0], &[4, 1, 0]]),
            (&rule::APS, 0.25, 0.5739163289925514, [&[1, 3, 4], &[2], &[4, 3, 2], &[4, 1]]),
            (&rule::RAPS, 0.1, 0.9452413584746646, [&[1, 3, 4, 2], &[2, 1, 3], &[4, 3, 2, 1], &[4, 1, 0]]),
            (&rule::RAPS, 0.25, 0.5739163289925514, [&[1, 3], &[2], &[4, 3], &[4, 1]]),
        ];
        let all = images(0, 20);
        let falling = |i: usize| {
            let probabilities = crate::metrics::scores::distribution(&all, i, Average::Logit).unwrap();
            let mut order: Vec<usize> = (0..5).collect();
            order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
            let sorted: Vec<f64> = order.iter().map(|class| probabilities[*class]).collect();
            (order, sorted)
        };
        for (score, level, wanted, sets) in golden {
            let scores = |i: usize| {
                let (order, sorted) = falling(i);
                let of = (score.of)(&sorted, (0.37 * (i + 1) as f64).fract(), FIXED.regularisation);
                order.into_iter().zip(of).collect::<Vec<_>>()
            };
            let label = |i: usize| all.labels().unwrap()[i] as usize;
            let own = |i: usize| scores(i).into_iter().find(|(class, _)| *class == label(i)).unwrap().1;
            let found = threshold((0..16).map(own).collect(), alpha(level)).unwrap();
            close(found, wanted);
            for (at, set) in sets.iter().enumerate() {
                let inside = scores(16 + at).into_iter().filter(|(_, score)| *score <= found);
                assert_eq!(inside.map(|(class, _)| class).collect::<Vec<_>>(), *set, "{} {level} {at}", score.key);
            }
        }
    }

    /// The lines `class-wise` of `scripts/make_conformal_goldens.py`.
    #[test]
    fn each_class_has_a_threshold_of_its_own() {
        let rule = Rule { thresholds: Thresholds::ClassWise, ..FIXED };
        const OF_LAC: [f64; 5] = [0.573324403131, 0.73008316866, 0.608915070548, 0.646000788013, 0.726991235332];
        const OF_APS: [f64; 5] = [0.433113382026, 0.313127366797, 0.0, 0.0, 0.383947066353];
        let last = |score: &Score| if score.key == rule::LAC.key { vec![4, 1] } else { vec![4] };
        for (score, thresholds) in [(&rule::LAC, OF_LAC), (&rule::APS, OF_APS), (&rule::RAPS, OF_APS)] {
            let sets = [vec![1], vec![2], vec![4], last(score)];
            let all = Calibrated::all(&[Rule { score, ..rule }], &[alpha(0.5)], &images(0, 16)).unwrap();
            all[0].thresholds.iter().zip(thresholds).for_each(|(found, wanted)| close(*found, wanted));
            assert_eq!(all[0].sets(&images(16, 20), 0).unwrap(), sets, "{}", score.key);
        }
        let names = ["a", "b", "c", "d", "e"].map(String::from);
        let labels = images(0, 16).labels().unwrap().to_vec();
        let refused = rule.check(alpha(0.3), &labels, &names).unwrap_err().to_string();
        assert!(
            refused.contains("2 calibration images of class `a` do not suffice") && refused.contains("= 3 are"),
            "{refused}"
        );
    }

    /// Over 1,000 repeats with 19 calibration images, each in a random order of exchangeable scores, the share of covered
    /// tests is binomial with the mean ⌈20 · 0.9⌉ / 20 = 0.9; the interval holds 99.99 % of it.
    #[test]
    fn coverage_of_exchangeable_scores_is_exact() {
        let mut rng = stream(3, Purpose::Check, &[17]);
        let covered = (0..1000).filter(|_| {
            let scores: Vec<f64> = (0..20).map(|_| uniform(&mut rng)).collect();
            scores[19] <= threshold(scores[..19].to_vec(), alpha(0.1)).unwrap()
        });
        let (found, deviation) = (covered.count() as f64, (1000.0f64 * 0.9 * 0.1).sqrt());
        assert!((found - 900.0).abs() < 3.9 * deviation, "{found}");
    }

    /// The same through predictions, sets and coverage: labels drawn from the predicted probabilities, so that images are
    /// exchangeable. Over 1,000 repeats of 9 calibration images and one test image, sets with a random draw cover 0.9 of
    /// the labels, and sets of LAC and those without a draw at least as many.
    #[test]
    fn sets_cover_as_often_as_they_say() {
        let rules: Vec<Rule> = [
            (&rule::LAC, Draw::Fixed),
            (&rule::APS, Draw::Fixed),
            (&rule::APS, Draw::Random),
            (&rule::RAPS, Draw::Random),
        ]
        .map(|(score, draw)| Rule { score, draw, ..FIXED })
        .to_vec();
        let mut rng = stream(5, Purpose::Check, &[18]);
        let mut draw = |samples: usize| {
            let (mut rows, mut labels) = (Vec::new(), Vec::new());
            for _ in 0..samples {
                let logits: Vec<f64> = (0..4).map(|_| 4.0 * uniform(&mut rng)).collect();
                let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
                let mut left = uniform(&mut rng);
                let label = logits.iter().position(|logit| {
                    left -= logit.exp() / total;
                    left < 0.0
                });
                labels.push(label.unwrap_or(3) as u32);
                rows.extend(logits.iter().map(|logit| *logit as f32));
            }
            Predictions::new(Shape { members: 1, samples, classes: 4 }, rows, labels).unwrap()
        };
        let mut covered = vec![0.0; rules.len()];
        for seed in 0..1000 {
            let rules: Vec<Rule> = rules.iter().map(|rule| Rule { seed, ..*rule }).collect();
            let calibrated = Calibrated::all(&rules, &[alpha(0.1)], &draw(9)).unwrap();
            let of_logits: Vec<Calibrated> =
                calibrated.into_iter().filter(|one| one.average == Average::Logit).collect();
            let found = Coverage::measure(&of_logits, &draw(1)).unwrap();
            covered.iter_mut().zip(found).for_each(|(sum, one)| *sum += one.strata[0].coverage.unwrap());
        }
        let bound = 3.9 * (1000.0f64 * 0.9 * 0.1).sqrt();
        assert!((covered[0] - 900.0).abs() < bound, "lac {covered:?}");
        assert!(covered[1] > 900.0 - bound, "aps without draws {covered:?}");
        assert!((covered[2] - 900.0).abs() < bound && (covered[3] - 900.0).abs() < bound, "with draws {covered:?}");
    }

    #[test]
    fn levels_ask_for_enough_images() {
        for (level, least) in [(0.1, 9), (0.05, 19), (0.5, 1), (0.3, 3), (0.01, 99), (0.9, 1), (0.001, 999)] {
            assert_eq!(alpha(level).least_images(), least, "{level}");
            let scores = |n: usize| (0..n).map(|score| score as f64).collect::<Vec<_>>();
            assert!(threshold(scores(least - 1), alpha(level)).is_err(), "{level}");
            assert!(threshold(scores(least), alpha(level)).is_ok(), "{level}");
        }
        let refused = FIXED.check(alpha(0.1), &[0; 8], &[]).unwrap_err().to_string();
        let rule =
            "conformal level 0.1: 8 calibration images do not suffice, at least ceil(1/alpha) - 1 = 9 are needed";
        assert!(refused.starts_with(rule), "{refused}");
        assert!(["0", "1", "-0.1", "nan", "x"].iter().all(|text| text.parse::<Alpha>().is_err()));
    }

    #[test]
    fn strata_add_up_and_unlabelled_images_have_sizes_only() {
        let mut rng = stream(5, Purpose::Check, &[19]);
        let groups = (0..20).map(|_| below(&mut rng, 2) as u32).collect();
        let test = images(0, 20).with_groups(groups, vec!["land".into(), "water".into()]).unwrap();
        let calibrated =
            Calibrated::all(&[Rule { score: &rule::APS, ..FIXED }], &[alpha(0.1)], &images(0, 16)).unwrap();
        let coverage = &Coverage::measure(&calibrated, &test).unwrap()[0];
        let all = &coverage.strata[0];
        for part in [Part::Class, Part::Group, Part::SetSize] {
            let own: Vec<&Stratum> = coverage.strata.iter().filter(|stratum| stratum.part == part).collect();
            assert_eq!(own.iter().map(|stratum| stratum.samples).sum::<usize>(), 20);
            let covered: f64 = own.iter().map(|stratum| stratum.samples as f64 * stratum.coverage.unwrap()).sum();
            close(covered / 20.0, all.coverage.unwrap());
            assert!(coverage.lowest(part).unwrap() <= all.coverage.unwrap());
        }
        let unlabelled = Predictions::unlabelled(test.shape(), test.all_logits().to_vec()).unwrap();
        let blind = &Coverage::measure(&calibrated, &unlabelled).unwrap()[0];
        assert_eq!((blind.strata[0].coverage, blind.strata[0].mean_set_size), (None, all.mean_set_size));
        assert!(blind.lowest(Part::Class).is_none());
    }
}
