//! Forecast of a measured number. Several simple forecasters see the same history, and the one with
//! the smallest recent error answers (the Network Weather Service, Wolski 1998, to which
//! io-coordination §8 points).
//!
//! No single forecaster suits every series: the mean suits noise, the last value suits a step, the
//! median suits outliers, exponential smoothing lies between. Running all of them costs less than
//! choosing one by hand.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Decay of earlier errors: about the last ten decide which forecaster answers.
const REMEMBERED: f64 = 0.9;

/// Numbers of values that the medians are taken of. Of an even number, it is the upper of the two
/// in the middle.
const WINDOWS: [usize; 2] = [5, 31];

/// Weights of a new value in exponential smoothing. For example 100 and a new value of 120 become
/// 101, 104 and 110.
const GAINS: [f64; 3] = [0.05, 0.2, 0.5];

trait Forecaster: Send {
    fn forecast(&self) -> f64;
    fn learn(&mut self, value: f64);
}

pub(crate) struct Forecast {
    /// Forecasters, each with its error.
    forecasters: Vec<(f64, Box<dyn Forecaster>)>,
}

impl Forecast {
    /// A forecast after one value.
    pub fn new(first: f64) -> Self {
        let mut all: Vec<Box<dyn Forecaster>> = Vec::new();
        all.push(Box::new(LastValue(first)));
        all.push(Box::new(Mean { mean: first, values: 1.0 }));
        all.extend(GAINS.map(|gain| -> Box<dyn Forecaster> {
            Box::new(ExponentialSmoothing { value: first, gain })
        }));
        all.extend(WINDOWS.map(|window| -> Box<dyn Forecaster> {
            Box::new(Median { values: [first].into(), window })
        }));
        Forecast { forecasters: all.into_iter().map(|forecaster| (0.0, forecaster)).collect() }
    }

    /// Each forecaster learns a value after it is judged by it: one that is wrong by 20 twice has
    /// an error of 2, then of 3.8.
    pub fn learn(&mut self, value: f64) {
        for (error, forecaster) in &mut self.forecasters {
            *error =
                *error * REMEMBERED + (forecaster.forecast() - value).abs() * (1.0 - REMEMBERED);
            forecaster.learn(value);
        }
    }

    pub fn value(&self) -> f64 {
        let nearest = self.forecasters.iter().min_by(|(one, _), (other, _)| one.total_cmp(other));
        nearest.expect("a forecast has forecasters").1.forecast()
    }
}

struct LastValue(f64);

impl Forecaster for LastValue {
    fn forecast(&self) -> f64 {
        self.0
    }

    fn learn(&mut self, value: f64) {
        self.0 = value;
    }
}

struct Mean {
    mean: f64,
    values: f64,
}

impl Forecaster for Mean {
    fn forecast(&self) -> f64 {
        self.mean
    }

    fn learn(&mut self, value: f64) {
        self.values += 1.0;
        self.mean += (value - self.mean) / self.values;
    }
}

struct ExponentialSmoothing {
    value: f64,
    gain: f64,
}

impl Forecaster for ExponentialSmoothing {
    fn forecast(&self) -> f64 {
        self.value
    }

    fn learn(&mut self, value: f64) {
        self.value += self.gain * (value - self.value);
    }
}

struct Median {
    values: VecDeque<f64>,
    window: usize,
}

impl Forecaster for Median {
    fn forecast(&self) -> f64 {
        let mut sorted: Vec<_> = self.values.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn learn(&mut self, value: f64) {
        if self.values.len() == self.window {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut forecast = Forecast::new(100.0);
        values.into_iter().for_each(|value| forecast.learn(value));
        forecast.value()
    }

    #[test]
    fn a_step_is_followed_at_once() {
        let values = (0..40).map(|_| 100.0).chain((0..10).map(|_| 10.0));
        assert_eq!(after(values), 10.0);
    }

    #[test]
    fn noise_is_averaged() {
        let value = after((0..100).map(|n| if n % 2 == 0 { 80.0 } else { 120.0 }));
        assert!((95.0..105.0).contains(&value), "{value}");
    }

    #[test]
    fn outliers_do_not_count() {
        let value = after((0..101).map(|n| if n % 10 == 0 { 1.0 } else { 100.0 }));
        assert_eq!(value, 100.0);
    }
}
