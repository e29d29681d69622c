//! The least sum of one choice per layer, where the choices' costs stay within a capacity per device.

/// What a layer may do.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Units of each device's capacity that it takes.
    pub cost: Vec<usize>,
    /// What is added to the sum.
    pub value: f64,
}

/// The index of each layer's choice. Every layer has a choice that costs nothing.
///
/// Of equal sums the one with the least cost, then the one whose first layers have the earliest choices.
pub fn minimise(layers: &[Vec<Choice>], capacity: &[usize]) -> Vec<usize> {
    let grid = Grid::new(capacity, layers);
    // best[l][state]: the least sum of layers l and after with that much capacity.
    let mut best = vec![vec![0.0; grid.n_states()]; layers.len() + 1];
    for (l, choices) in layers.iter().enumerate().rev() {
        let (this, next) = best.split_at_mut(l + 1);
        let (this, next) = (&mut this[l], &next[0]);
        this.fill(f64::INFINITY);
        choices.iter().for_each(|choice| grid.relax(choice, next, this));
    }

    let mut state = grid.cheapest(&best[0]);
    let pick = |(l, choices): (usize, &Vec<Choice>)| {
        let is_best = |choice: &Choice| {
            let rest = grid.after(state, choice)?;
            (best[l + 1][rest] + choice.value == best[l][state]).then_some(rest)
        };
        let found = choices.iter().enumerate().find_map(|(i, choice)| Some((i, is_best(choice)?)));
        let (i, rest) = found.unwrap_or((0, state));
        state = rest;
        i
    };
    layers.iter().enumerate().map(pick).collect()
}

/// States: what is left of each device's capacity, the last device innermost.
struct Grid {
    sizes: Vec<usize>,
}

impl Grid {
    /// No more of a capacity than all layers can take.
    fn new(capacity: &[usize], layers: &[Vec<Choice>]) -> Grid {
        let most = |d: usize| {
            let of_layer = |choices: &Vec<Choice>| choices.iter().map(|c| c.cost[d]).max().unwrap_or(0);
            layers.iter().map(of_layer).fold(0, usize::saturating_add)
        };
        Grid { sizes: capacity.iter().enumerate().map(|(d, &n)| n.min(most(d)) + 1).collect() }
    }

    fn n_states(&self) -> usize {
        self.sizes.iter().fold(1, |n, &size| n.saturating_mul(size))
    }

    /// The state's coordinates.
    fn of(&self, mut state: usize) -> Vec<usize> {
        let mut left = vec![0; self.sizes.len()];
        for (left, &size) in left.iter_mut().zip(&self.sizes).rev() {
            *left = state % size;
            state /= size;
        }
        left
    }

    /// How far apart states are whose coordinates differ by these.
    fn distance(&self, cost: &[usize]) -> usize {
        cost.iter().zip(&self.sizes).fold(0, |at, (n, size)| at * size + n)
    }

    /// The state that a choice leaves, if it fits.
    fn after(&self, state: usize, choice: &Choice) -> Option<usize> {
        let fits = self.of(state).iter().zip(&choice.cost).all(|(left, cost)| left >= cost);
        fits.then(|| state - self.distance(&choice.cost))
    }

    /// Lowers `this` to what it is with the choice, at every state where that fits.
    fn relax(&self, choice: &Choice, next: &[f64], this: &mut [f64]) {
        let (&inner, outer) = self.sizes.split_last().unwrap_or((&1, &[]));
        let (&cost, outer_cost) = choice.cost.split_last().unwrap_or((&0, &[]));
        if cost >= inner {
            return;
        }
        let outer_grid = Grid { sizes: outer.to_vec() };
        let distance = outer_grid.distance(outer_cost);
        for row in 0..outer_grid.n_states() {
            let fits = outer_grid.of(row).iter().zip(outer_cost).all(|(left, cost)| left >= cost);
            if fits {
                let from = &next[(row - distance) * inner..][..inner - cost];
                let to = &mut this[row * inner..][cost..inner];
                for (to, from) in to.iter_mut().zip(from) {
                    *to = to.min(from + choice.value);
                }
            }
        }
    }

    /// Of the states with the least sum the one with the least capacity.
    fn cheapest(&self, best: &[f64]) -> usize {
        let least = best.iter().copied().fold(f64::INFINITY, f64::min);
        let states = (0..best.len()).filter(|&state| best[state] == least);
        states.min_by_key(|&state| (self.of(state).iter().sum::<usize>(), state)).unwrap_or(0)
    }
}
