//! An order of which nobody knows how its generator goes on: the ways on are held side by side, and the first opens of an epoch tell.

use super::count_tests::{Desk, Loader, torch_from};
use super::simulate::Dice;
use super::{EpochFiles, OrderConfig, OrderState, Way, WayOn};
use crate::types::{Epoch, FileIndex};

const N: u32 = 2_000;
const SEED: u64 = 42;
/// As supposed: by this many outputs.
const SUPPOSED: Way = 4;

/// Output that seeds an epoch of a run whose strides are given: the one that leads to epoch 1 first.
fn output(strides: &[Way], epoch: Epoch) -> u64 {
    3 + strides.iter().take(usize::try_from(epoch).unwrap()).sum::<u64>()
}

/// A planner of such a run that supposes otherwise, with a cache for two fifths.
fn desk(strides: &'static [Way], likely: &[Way]) -> Desk {
    let mut desk = Desk::new(N, u64::from(N) * 400);
    desk.orders.push(Box::new(move |epoch, way| {
        let before = if epoch == 0 { return EpochFiles { files: torch_from(N, SEED, 3), stride: 1 } } else { epoch - 1 };
        let way = if way == 0 { SUPPOSED } else { way };
        EpochFiles { files: torch_from(N, SEED, output(strides, before) + way), stride: 1 }
    }));
    let order = desk.planner.add_order(OrderConfig::default());
    let likely: Vec<WayOn> = likely.iter().map(|&way| WayOn { way, likely: true }).collect();
    desk.planner.set_ways(order, &likely);
    desk.tell(super::Event::Tick);
    desk
}

fn loader(workers: usize) -> Loader {
    Loader { workers, batch: 32, dice: Dice::new(5), next_process: 1 }
}

/// Reads an epoch, while what is likely is told as the inference would; how many were not here.
fn read(desk: &mut Desk, loader: &mut Loader, files: &[FileIndex], likely: &[Way]) -> usize {
    let mut misses = 0;
    let mut went = None;
    for (process, file) in loader.epoch(files) {
        let going = desk.planner.going(0);
        if went != Some(going) && going.proven {
            went = Some(going);
            let now = if going.way == 0 { SUPPOSED } else { going.way };
            let ways = likely.iter().map(|&way| WayOn { way, likely: true }).chain([WayOn { way: now + 2, likely: false }]);
            desk.planner.set_ways(0, &ways.filter(|on| on.way != now).collect::<Vec<_>>());
        }
        misses += usize::from(!desk.open(process, file));
    }
    misses
}

#[test]
fn the_first_opens_tell_by_which_way_an_order_goes_on_and_its_front_is_here_before() {
    for (strides, workers) in [(&[4; 3], 4), (&[2; 3], 4), (&[6; 3], 4), (&[6; 3], 2), (&[2_004; 3], 1), (&[2; 3], 1)] {
        let mut desk = desk(strides, &[2, 6, 2_004]);
        let mut loader = loader(workers);
        let text = format!("strides of {}, {workers} workers", strides[0]);
        for epoch in 0..4 {
            let files = torch_from(N, SEED, output(strides, epoch));
            if epoch > 0 {
                let mut shown = vec![desk.planner.upcoming(0, desk.now, 64).into_iter().map(|(_, file)| file).collect::<Vec<_>>()];
                shown.extend(desk.planner.perhaps(0, 64).into_iter().map(|(_, files)| files));
                assert!(shown.iter().any(|shown| shown[..] == files[..64]), "{text}: epoch {epoch} is not foretold");
                assert!(epoch == 1 || desk.planner.going(0).proven, "{text}");
            }
            let misses = read(&mut desk, &mut loader, &files, &[]);
            assert!(misses == 0 || epoch == 0, "{text}: {misses} misses in epoch {epoch}");
            let view = desk.planner.order(0);
            assert_eq!((view.state, view.observed), (OrderState::Locked, view.predicted), "{text}: epoch {epoch}: {}", view.note);
        }
        let way = desk.planner.going(0).way;
        assert_eq!(if way == 0 { SUPPOSED } else { way }, strides[0], "{text}");
        let (wasted, fronts) = (desk.planner.view().wasted.files, 4 * u64::from(N) / 16);
        // a window of what was supposed, and the fronts of the others, once
        assert!(wasted <= fronts + u64::from(N) / 10, "{text}: {wasted} wasted");
    }
}

#[test]
fn a_way_that_comes_now_and_then_is_told_each_time() {
    // validation every third epoch
    const STRIDES: &[Way] = &[4, 4, 6, 4, 4, 6, 4];
    let mut desk = desk(STRIDES, &[2, 6]);
    let mut loader = loader(4);
    for epoch in 0..8 {
        let misses = read(&mut desk, &mut loader, &torch_from(N, SEED, output(STRIDES, epoch)), &[4, 6]);
        assert!(misses == 0 || epoch == 0, "{misses} misses in epoch {epoch}");
        let view = desk.planner.order(0);
        assert_eq!((view.state, view.observed), (OrderState::Locked, view.predicted), "epoch {epoch}: {}", view.note);
    }
}

#[test]
fn an_epoch_reached_by_none_of_the_ways_is_lost_at_once() {
    let mut desk = desk(&[40; 3], &[2, 6, 8, 2_004]);
    let mut loader = loader(4);
    read(&mut desk, &mut loader, &torch_from(N, SEED, 3), &[]);
    let next = loader.epoch(&torch_from(N, SEED, 43));
    let lost = next.iter().position(|&(process, file)| {
        desk.open(process, file);
        desk.planner.order(0).state != OrderState::Locked
    });
    assert!(lost.is_some_and(|lost| lost < 32), "{lost:?}");
}

/// Four workers that persist read a batch each, side by side: by place, the last one's would be fetched after the others'.
#[test]
fn an_epoch_that_came_is_fetched_in_the_sequence_in_which_the_one_before_was_opened() {
    const STRIDES: &[Way] = &[2; 3];
    const BATCH: usize = 256;
    let mut desk = desk(STRIDES, &[2, 6]);
    for epoch in 0..4 {
        let files = torch_from(N, SEED, output(STRIDES, epoch));
        let mut late = Vec::new();
        for (number, round) in files.chunks(4 * BATCH).enumerate() {
            let batches: Vec<&[FileIndex]> = round.chunks(BATCH).collect();
            for at in 0..BATCH {
                for (process, batch) in (100..).zip(&batches) {
                    let here = batch.get(at).is_none_or(|&file| desk.open(process, file));
                    // as far as the sequence is known
                    if !here && number == 0 && at < 112 {
                        late.push((process, at));
                    }
                }
            }
        }
        assert!(epoch == 0 || late.is_empty(), "epoch {epoch}: {late:?}");
        let view = desk.planner.order(0);
        assert_eq!((view.state, view.observed), (OrderState::Locked, view.predicted), "epoch {epoch}: {}", view.note);
    }
}
