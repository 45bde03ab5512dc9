//! The CMake package of the device library: installed, found, and used by a separate project.

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cmake").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the test's folder is writable");
    path
}

const PROJECT: &str = r#"
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES CXX)
find_package(cusync 0.1 REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE cusync::cusync)
"#;

/// The part visible to a host compiler: a policy's slots.
const SOURCE: &str = r#"
#include "cusync/cusync.hpp"
int main() {
  cusync_order order{};
  order.grid_m = 2;
  order.grid_n = 3;
  return cusync::tile_at(order, 4).m == 1 ? 0 : 1;
}
"#;

#[test]
fn a_project_finds_the_installed_package() {
    if Command::new("cmake").arg("--version").output().is_err() {
        println!("skipped: no cmake");
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("csrc");
    let (build, prefix, project) = (folder("library"), folder("prefix"), folder("user"));
    run(Command::new("cmake").arg("-S").arg(source).arg("-B").arg(&build));
    run(Command::new("cmake").arg("--install").arg(&build).arg("--prefix").arg(&prefix));
    std::fs::write(project.join("CMakeLists.txt"), PROJECT).expect("writable");
    std::fs::write(project.join("user.cpp"), SOURCE).expect("writable");
    let out = folder("user_build");
    run(Command::new("cmake")
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(&out)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(Command::new("cmake").arg("--build").arg(&out));
    run(&mut Command::new(out.join("user")));
    // Another minor version is incompatible.
    std::fs::write(project.join("CMakeLists.txt"), PROJECT.replace("cusync 0.1", "cusync 0.9"))
        .expect("writable");
    let refused = Command::new("cmake")
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(folder("user_other"))
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .output()
        .expect("cmake starts");
    assert!(!refused.status.success());
}
