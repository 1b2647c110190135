//! Proposes one of several settings by the scores of each question under each of them, without mistaking
//! noise for a gain.

/// The number of folds for cross-validation: each part of the questions is left out once while the best
/// settings are chosen by the others.
const FOLDS: usize = 5;
/// The fewest questions from which anything can be concluded.
pub const LEAST_QUESTIONS: usize = 10;
/// The least gain of a change.
pub const LEAST_GAIN: f64 = 0.01;
/// The least gain in standard errors.
const ERRORS: f64 = 2.0;

/// The mean difference from the present settings over all questions, and its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    pub mean: f64,
    /// Infinite for fewer than two questions.
    pub error: f64,
}

/// The proposal, as an index of the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub place: usize,
    /// The index of the best settings over all questions, whether proposed or not.
    pub best: usize,
    /// The gain of the choice, for each question with the settings that are the best for the other folds.
    pub held_out: Gain,
}

/// The difference between two settings, question by question.
pub fn gain(scores: &[f64], present: &[f64]) -> Gain {
    gain_of(&scores.iter().zip(present).map(|(score, present)| score - present).collect::<Vec<_>>())
}

fn gain_of(differences: &[f64]) -> Gain {
    let count = differences.len() as f64;
    let mean = if differences.is_empty() { 0.0 } else { differences.iter().sum::<f64>() / count };
    let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
    let error = if count < 2.0 { f64::INFINITY } else { (squares / (count - 1.0) / count).sqrt() };
    Gain { mean, error }
}

/// `scores` has a score per question for each of the settings, of which the first are the present ones. These
/// are kept unless the choice gains enough for questions that were not used to make it.
pub fn propose(scores: &[Vec<f64>]) -> Proposal {
    let questions = scores.first().map_or(0, Vec::len);
    let mut differences = vec![0.0; questions];
    for fold in 0..FOLDS {
        let best = best(scores, |question| question % FOLDS != fold);
        for question in (fold..questions).step_by(FOLDS) {
            differences[question] = scores[best][question] - scores[0][question];
        }
    }
    let held_out = gain_of(&differences);
    let is_gain = questions >= LEAST_QUESTIONS
        && held_out.mean >= LEAST_GAIN
        && held_out.mean >= ERRORS * held_out.error;
    let best = best(scores, |_| true);
    Proposal { place: if is_gain { best } else { 0 }, best, held_out }
}

/// The settings with the greatest sum over these questions, or the first of equal ones.
fn best(scores: &[Vec<f64>], counts: impl Fn(usize) -> bool) -> usize {
    let sum = |of: &Vec<f64>| of.iter().enumerate().filter(|(i, _)| counts(*i)).map(|(_, score)| score).sum();
    let sums: Vec<f64> = scores.iter().map(sum).collect();
    let better = |best: usize, place: usize| if sums[place] > sums[best] { place } else { best };
    (1..sums.len()).fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom numbers from 0 to 1.
    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f64()).collect()
    }

    #[test]
    fn settings_that_are_better_for_most_questions_are_proposed() {
        let present = noise(1, 100);
        let better = present.iter().zip(noise(2, 100)).map(|(p, n)| p + 0.1 * n).collect();
        let worse = noise(3, 100).iter().map(|score| score * 0.8).collect();
        let proposal = propose(&[present, worse, better]);
        assert_eq!((proposal.place, proposal.best), (2, 2));
        assert!((proposal.held_out.mean - 0.05).abs() < 0.02, "{proposal:?}");
    }

    #[test]
    fn the_luckiest_of_many_equal_settings_is_rarely_proposed() {
        let mut proposed = 0;
        for seed in 0..200 {
            let settings: Vec<Vec<f64>> = (0..9).map(|i| noise(seed * 100 + i, 50)).collect();
            let proposal = propose(&settings);
            assert!(proposal.place == 0 || proposal.place == proposal.best);
            proposed += usize::from(proposal.place != 0);
        }
        assert!(proposed <= 14, "{proposed} of 200");
    }

    #[test]
    fn small_differences_few_questions_or_ties_keep_the_present_settings() {
        let present = noise(1, 100);
        let slightly = present.iter().map(|p| p + 0.005).collect();
        assert_eq!(propose(&[present.clone(), slightly]).place, 0);
        let few = vec![0.1; LEAST_QUESTIONS - 1];
        assert_eq!(propose(&[few.clone(), few.iter().map(|p| p + 0.5).collect()]).place, 0);
        assert_eq!(
            propose(&[present.clone(), present.clone()]),
            Proposal { place: 0, best: 0, held_out: Gain { mean: 0.0, error: 0.0 } }
        );
        assert_eq!(propose(&[Vec::new(), Vec::new()]).place, 0);
        assert_eq!(propose(&[vec![0.0], vec![1.0]]).place, 0);
    }

    #[test]
    fn a_gain_is_a_paired_difference() {
        let found = gain(&[0.5, 0.7, 0.9], &[0.4, 0.4, 0.4]);
        assert!((found.mean - 0.3).abs() < 1e-12 && (found.error - 0.115470).abs() < 1e-6, "{found:?}");
    }
}
