# tidemark_test(NAME SOURCES ... LIBS ... [LABELS ...])
#   A GoogleTest program; every TEST in it is one ctest case, so that `./check` counts behaviours,
#   not binaries. LABELS: requires_bpf, requires_gpu, slow, e2e.
#
# tidemark_script_test(NAME COMMAND ... [LABELS ...] [TIMEOUT seconds])
#   A script that is one case. Exit status 0 passes, 77 skips (it must print why), else fails.
include(CTest)
if(TIDEMARK_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

function(tidemark_test name)
  if(NOT TIDEMARK_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  tidemark_sanitize(${name})
  gtest_discover_tests(${name} TEST_PREFIX "${name}:" DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 300 LABELS "${ARG_LABELS}")
endfunction()

function(tidemark_script_test name)
  if(NOT TIDEMARK_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  # A node daemon sees every rank on the machine, those of other tests too.
  if("e2e" IN_LIST ARG_LABELS)
    set(alone ON)
  else()
    set(alone OFF)
  endif()
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT}
    LABELS "${ARG_LABELS}"
    RUN_SERIAL ${alone}
    ENVIRONMENT "TIDEMARK_BUILD=${PROJECT_BINARY_DIR};TIDEMARK_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
