//! The files written by `cusync trace --simulate` and `cusync simulate -o`: events that Perfetto can display, and a
//! self-contained page.

use std::collections::BTreeMap;

use cusync::runtime::SHIPPED;
use cusync::trace::{defect, simulated, simulated_run};
use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use serde_json::Value;

use super::cusync;

/// Runs the command and returns the contents of `file`.
fn written(file: &str, args: &[&str]) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let to = path.display().to_string();
    let output = cusync(&[args, &["-o", &to]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(path).expect("the file was written")
}

const CASES: [&[&str]; 6] = [
    &["trace", "gpt3_mlp", "--simulate"],
    &["trace", "llama65_mlp", "--simulate", "--dim", "M=300", "--executor", "fused"],
    &["trace", "chain3", "--simulate", "--executor", "programmatic"],
    &["trace", "diamond", "--simulate", "--executor", "streams"],
    &["trace", "two_gemms", "--simulate", "--device", "a100"],
    &["simulate", "gpt3_mlp", "--dim", "M=1024"],
];

fn ns(value: &Value) -> i64 {
    let us = value.as_f64().unwrap_or_else(|| panic!("{value} is not a time"));
    let ns = us * 1e3;
    assert!((ns - ns.round()).abs() < 1e-3, "{us} us is not a whole number of nanoseconds");
    ns.round() as i64
}

type Track = (u64, u64);

fn track(event: &Value) -> Track {
    let number = |field: &str| event[field].as_u64().unwrap_or_else(|| panic!("no {field} in {event}"));
    (number("pid"), number("tid"))
}

/// Slices by track, each (begin, end, category), outermost first.
fn slices(events: &[Value]) -> BTreeMap<Track, Vec<(i64, i64, &str)>> {
    let mut tracks: BTreeMap<Track, Vec<(i64, i64, &str)>> = BTreeMap::new();
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let (begin, length) = (ns(&event["ts"]), ns(&event["dur"]));
        assert!(begin >= 0 && length > 0, "{event}");
        assert!(event["name"].is_string() && event["args"].is_object(), "{event}");
        let category = event["cat"].as_str().expect("a category");
        tracks.entry(track(event)).or_default().push((begin, begin + length, category));
    }
    // If two slices begin together, the longer one encloses the other.
    tracks.values_mut().for_each(|list| list.sort_by_key(|s| (s.0, -s.1, s.2 != "tile")));
    tracks
}

#[test]
fn slices_nest_and_tiles_are_filled_by_their_phases() {
    for case in CASES {
        let value: Value = serde_json::from_str(&written("nest.json", case)).expect("JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        let tracks = slices(events);
        assert!(!tracks.is_empty(), "{case:?}");
        for (track, list) in &tracks {
            let (mut tile, mut filled) = ((0, 0), 0);
            for &(begin, end, category) in list {
                if category == "tile" {
                    assert_eq!(filled, tile.1, "{case:?} {track:?}: a tile is not filled by its phases");
                    assert!(begin >= tile.1, "{case:?} {track:?}: tiles overlap at {begin} ns");
                    (tile, filled) = ((begin, end), begin);
                } else {
                    assert!(["wait", "load", "math", "epilogue"].contains(&category), "{category}");
                    assert_eq!(begin, filled, "{case:?} {track:?}: a gap or an overlap inside a tile");
                    assert!(end <= tile.1, "{case:?} {track:?}: a phase is longer than its tile");
                    filled = end;
                }
            }
            let named = |e: &&Value| e["ph"] == "M" && e["name"] == "thread_name";
            let names = events.iter().filter(named).filter(|e| self::track(e) == *track).count();
            assert_eq!(names, 1, "{case:?}: names of {track:?}");
            assert_ne!(track.0, track.1, "{case:?}: readers take this SM for the run's main thread");
        }
    }
}

#[test]
fn every_arrow_leads_forward_from_a_tile_to_the_end_of_a_wait() {
    let mut arrows = 0;
    for case in CASES {
        let value: Value = serde_json::from_str(&written("arrows.json", case)).expect("JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        let tracks = slices(events);
        let inside = |event: &Value, category: &str| {
            let at = ns(&event["ts"]);
            let list = &tracks[&track(event)];
            list.iter().any(|&(begin, end, c)| c == category && begin <= at && at < end)
        };
        let mut ends: BTreeMap<u64, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
        for event in events.iter().filter(|e| e["ph"] == "s" || e["ph"] == "f") {
            let pair = ends.entry(event["id"].as_u64().expect("an id")).or_default();
            let end = if event["ph"] == "s" { &mut pair.0 } else { &mut pair.1 };
            assert!(end.replace(event).is_none(), "{case:?}: two ends of one kind: {event}");
        }
        arrows += ends.len();
        for (id, pair) in ends {
            let (Some(from), Some(to)) = pair else { panic!("{case:?}: arrow {id} has one end: {pair:?}") };
            assert_eq!((&from["name"], &from["cat"], &from["pid"]), (&to["name"], &to["cat"], &to["pid"]));
            assert!(ns(&from["ts"]) <= ns(&to["ts"]), "{case:?}: back in time: {from} {to}");
            assert!(inside(from, "tile") && inside(to, "wait") && to["bp"] == "e", "{case:?}: {from} {to}");
        }
    }
    assert!(arrows > 100, "only {arrows} arrows in all");
}

/// Extracts the page's data.
fn data(page: &str) -> Value {
    let open = "<script id=\"data\" type=\"application/json\">";
    let (_, rest) = page.split_once(open).expect("the page has data");
    let (data, _) = rest.split_once("</script>").expect("the data end");
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_page_loads_nothing_and_holds_all() {
    for case in CASES {
        let page = written("page.html", case);
        for load in ["http:", "https:", "//cdn", " src=", " href=", "@import", "url(", "fetch(", "import("] {
            assert!(!page.contains(load), "{case:?}: the page has `{load}`");
        }
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        assert!(page.matches("<script").count() == 2 && page.matches("</script>").count() == 2);
        let data = data(&page);
        let runs = data["runs"].as_array().expect("runs");
        assert!(runs.len() >= 2 && runs[0]["name"] == "serial", "{case:?}");
        let stages = data["stages"].as_array().expect("stages").len() as u64;
        let edges = data["edges"].as_array().expect("edges").len();
        for run in runs {
            let column = |table: &str, name: &str| -> Vec<i64> {
                let list = run[table][name].as_array().unwrap_or_else(|| panic!("{table}.{name}"));
                list.iter().map(|v| v.as_i64().unwrap_or_else(|| panic!("{table}.{name}: {v}"))).collect()
            };
            let (stage, sm, begin) =
                (column("spans", "stage"), column("spans", "sm"), column("spans", "begin"));
            let (phases, end) = (column("spans", "phases"), column("phases", "end"));
            let (edge, from, kind) =
                (column("phases", "edge"), column("phases", "from"), column("phases", "kind"));
            let sms = run["sms"].as_i64().expect("SMs");
            assert!(!stage.is_empty());
            for name in ["m", "n", "k0", "k1"] {
                assert_eq!(column("spans", name).len(), stage.len());
            }
            assert_eq!(run["spans"]["part"].as_array().map(Vec::len), Some(stage.len()));
            assert_eq!((sm.len(), begin.len(), phases.len()), (stage.len(), stage.len(), stage.len()));
            assert_eq!(phases.iter().sum::<i64>() as usize, end.len());
            assert_eq!((edge.len(), from.len(), kind.len()), (end.len(), end.len(), end.len()));
            assert!(stage.iter().all(|s| (*s as u64) < stages) && sm.iter().all(|s| (0..sms).contains(s)));
            let ends: Vec<i64> = phases
                .iter()
                .scan(0, |at, count| {
                    *at += *count as usize;
                    Some(end[*at - 1])
                })
                .collect();
            let (mut place, mut waited) = (0, 0);
            for span in 0..stage.len() {
                let mut now = begin[span];
                for phase in place..place + phases[span] as usize {
                    assert!(end[phase] >= now, "{case:?}: span {span} goes back in time");
                    assert!((edge[phase] as i128) < edges as i128 && (0..4).contains(&kind[phase]));
                    if from[phase] >= 0 {
                        assert!(kind[phase] == 0, "only waits have a cause");
                        assert!(
                            ends[from[phase] as usize] <= end[phase] + 1,
                            "{case:?}: a cause after its wait"
                        );
                    }
                    if kind[phase] == 0 {
                        waited += end[phase] - now;
                    }
                    now = end[phase];
                }
                place += phases[span] as usize;
            }
            let by_edge = run["waits_us"].as_array().expect("waits");
            assert_eq!(by_edge.len(), edges + 1);
            let sum: f64 = by_edge.iter().filter_map(Value::as_f64).sum();
            let want = waited as f64 * 1e-3 / sms as f64;
            assert!((sum - want).abs() <= 1e-3 * stage.len() as f64 / sms as f64 + 1e-9, "{sum} {want}");
            assert!((run["shares"]["wait_us"].as_f64().expect("a share") - sum).abs() < 1e-9);
        }
    }
}

#[test]
fn a_trace_says_what_was_waited_for() {
    let args = ["trace", "gpt3_mlp", "--simulate", "--executor", "programmatic", "--dim", "M=768", "--json"];
    let output = cusync(&args);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&value["origin"], &value["runs"][0]["name"]), (&"simulated".into(), &"serial".into()));
    let waits = value["runs"][1]["waits"].as_array().expect("waits");
    assert_eq!((waits.len(), &waits[0][0]), (1, &"up -> down (Y)".into()));
    let (total, wait) = (&value["runs"][1]["shares"]["wait_us"], &waits[0][1]);
    assert!((total.as_f64().expect("us") - wait.as_f64().expect("us")).abs() < 1e-9);
    assert!(
        value["runs"][0]["waits"].as_array().is_some_and(Vec::is_empty),
        "serial launches wait for nothing"
    );
}

/// The library's timelines of all shipped specs with rows to choose are valid.
#[test]
fn predicted_timelines_have_no_defect() {
    let device = Profile::named("h200").expect("the profile ships");
    let mut checked = 0;
    for (name, source) in SHIPPED {
        let spec = cusync_gen::spec::parse(source, name).expect("it parses");
        let Ok(resolved) = spec.resolve(&[("M".into(), 300)]) else { continue };
        // No predictions for a stage that no GPU kernel runs.
        if !resolved.own_kernels(device) {
            continue;
        }
        checked += 1;
        for executor in [Executor::Serial, Executor::Streams, Executor::Programmatic] {
            let candidate = choose::candidate(&resolved, device, executor).expect("it can be planned");
            let mut timeline = simulated(&candidate);
            timeline.runs.push(simulated_run(&candidate, executor));
            assert_eq!(defect(&timeline), None, "{name} {executor:?}");
            // The timeline has each tile that the model computes exactly once.
            let tiles: u32 = candidate.graph.stages.iter().map(|s| s.tiles()).sum();
            assert_eq!(timeline.runs[0].spans.len(), tiles as usize);
            // Errors are detected.
            let spans = &mut timeline.runs[0].spans;
            spans[0].phases[0].end_us = spans[0].begin_us - 1.0;
            assert!(defect(&timeline).is_some_and(|d| d.contains("before it begins")));
        }
    }
    assert!(checked >= 5, "only {checked} specs");
}

#[test]
fn a_name_that_says_no_format_is_refused() {
    let args = ["trace", "gpt3_mlp", "--simulate", "-o", "timeline.txt"];
    let output = cusync(&args);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(".html"));
}

/// Sessions handled by host threads: items of a chain kernel, and a job of a decode kernel.
const SESSIONS: [&[&str]; 2] = [
    &["trace", "SPEC", "--executor", "copilot"],
    &["trace", "SPEC", "--executor", "copilot", "--dim", "M=24"],
];

/// Two kinds of stages; with few rows they would use a decode kernel.
const TWO: &str = r#"Pipeline(name: "two", dims: { "M": 300, "H": 192 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;

fn traced(file: &str, args: &[&str]) -> String {
    let spec = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{file}.ron"));
    std::fs::write(&spec, TWO).expect("a file");
    let spec = spec.display().to_string();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "SPEC" { spec.as_str() } else { arg }).collect();
    written(file, &args)
}

#[test]
fn a_session_shows_jobs_and_the_word_of_every_tile() {
    for (case, tiles) in SESSIONS.into_iter().zip([2 * 3 * 2, 0]) {
        let value: Value = serde_json::from_str(&traced("session.json", case)).expect("JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        let slices_of = |category: &str| {
            events.iter().filter(|e| e["cat"] == category && e["ph"] == "X").collect::<Vec<_>>()
        };
        let (jobs, words, spans) = (slices_of("jobs"), slices_of("words"), slices_of("tile"));
        assert_eq!((jobs.len(), words.len()), (1, tiles), "{case:?}");
        let end = |e: &Value| ns(&e["ts"]) + ns(&e["dur"]);
        // All work lies between submission and the moment its end is observed. There is only one clock, and the trace
        // claims microsecond accuracy.
        let slack = 1000;
        assert!(!spans.is_empty());
        for span in &spans {
            assert!(
                ns(&span["ts"]) + slack >= ns(&jobs[0]["ts"]) && end(span) <= end(jobs[0]) + slack,
                "{case:?}: {span}"
            );
        }
        // No two words have the same time: one host writes them all.
        let mut times: Vec<i64> = words.iter().map(|word| ns(&word["ts"])).collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), tiles, "{case:?}");
        let ends = |kind: &str| {
            let of_kind = |e: &&Value| e["cat"] == "mail" && e["ph"] == kind;
            events
                .iter()
                .filter(of_kind)
                .map(|e| (e["id"].as_u64().expect("an id"), e))
                .collect::<BTreeMap<_, _>>()
        };
        let (from, to) = (ends("s"), ends("f"));
        assert_eq!((from.len(), to.len()), (tiles, tiles), "{case:?}: each word has an arrow to its tile");
        for (id, word) in from {
            let tile = to[&id];
            let lies = |outer: &&&Value| {
                track(outer) == track(tile)
                    && ns(&outer["ts"]) <= ns(&tile["ts"])
                    && ns(&tile["ts"]) < end(outer)
            };
            assert!(ns(&word["ts"]) <= ns(&tile["ts"]), "{case:?}: taken before it was written");
            assert_eq!(spans.iter().filter(lies).count(), 1, "{case:?}: arrow {id} ends in no tile: {tile}");
        }
        // Host threads are not on the SM tracks.
        let sms: Vec<Track> = spans.iter().map(|e| track(e)).collect();
        assert!(jobs.iter().chain(&words).all(|e| !sms.contains(&track(e))), "{case:?}");
    }
}

#[test]
fn a_page_of_a_session_has_what_the_host_did() {
    for (case, tiles) in SESSIONS.into_iter().zip([2 * 3 * 2, 0]) {
        let data = data(&traced("session.html", case));
        let run = data["runs"].as_array().expect("runs").last().expect("a session");
        assert_eq!(run["name"], "copilot");
        let rows: Vec<&str> =
            run["host_rows"].as_array().expect("rows").iter().filter_map(Value::as_str).collect();
        assert_eq!(rows, ["jobs", "launches", "words"]);
        let spans = run["spans"]["stage"].as_array().expect("spans").len() as i64;
        let (mut seen, mut before) = (Vec::new(), 0);
        for event in run["host"].as_array().expect("what the host did") {
            let [row, begin, end, span] = [0, 2, 3, 4].map(|at| event[at].as_i64().expect("a number"));
            assert!(before <= begin && begin <= end, "{case:?}: {event}");
            assert_eq!(
                row == 2,
                (0..spans).contains(&span),
                "{case:?}: a word is of a span, and nothing else is: {event}"
            );
            before = begin;
            seen.extend((row == 2).then_some(span));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), tiles, "{case:?}: every span has its word");
    }
}
