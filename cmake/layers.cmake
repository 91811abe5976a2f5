# bevy_layer(NAME DEPS layer... LINK library...): one folder of src/ as one static library plus,
# where it has *_test.cc files, one test program. Which layer may use which is declared in
# src/CMakeLists.txt, enforced by the linker (a test program takes in its whole layer, and only the
# declared ones besides) and checked include by include by tests/tidy.
#
# INTERFACES names single headers of other layers that only declare; TEST_DEPS and TEST_LINK are for
# the tests alone. BEVY_LAYERS limits a build to some layers: the sanitizer presets leave out those
# that mostly run uninstrumented code of others.
set(BEVY_LAYERS "" CACHE STRING "Layers to build (a list); empty: all")
set(BEVY_TEST_PREFIX "" CACHE STRING "Put before test names, to tell the presets' tests apart")

function(bevy_layer_wanted name result)
    if(BEVY_LAYERS STREQUAL "" OR name IN_LIST BEVY_LAYERS)
        set(${result} TRUE PARENT_SCOPE)
    else()
        set(${result} FALSE PARENT_SCOPE)
    endif()
endfunction()

# One ctest test per gtest test that matches `filter`. Higher costs start first in parallel runs.
# ggml's threads wait for each other actively, unless told otherwise; where tests run side by side
# or the machine does something else besides, they would keep from running whom they wait for.
function(bevy_discover_tests target prefix label filter cost)
    gtest_discover_tests(${target} TEST_PREFIX "${prefix}" TEST_FILTER "${filter}"
        TEST_LIST ${target}_${label} DISCOVERY_TIMEOUT 120
        PROPERTIES LABELS ${label} COST ${cost} TIMEOUT 600
                   ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()

function(bevy_layer name)
    cmake_parse_arguments(ARG "" "" "DEPS;INTERFACES;LINK;TEST_DEPS;TEST_LINK" ${ARGN})
    bevy_layer_wanted(${name} wanted)
    if(NOT wanted)
        return()
    endif()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
    set(tests ${sources})
    list(FILTER sources EXCLUDE REGEX "_test(_[a-z]+)?\\.cc$")
    list(FILTER tests INCLUDE REGEX "_test(_[a-z]+)?\\.cc$")

    set(scope PUBLIC)
    if(sources)
        add_library(bevy_${name} STATIC ${sources})
    else()
        add_library(bevy_${name} INTERFACE)
        set(scope INTERFACE)
    endif()
    target_include_directories(bevy_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
    foreach(dep IN LISTS ARG_DEPS)
        target_link_libraries(bevy_${name} ${scope} bevy_${dep})
    endforeach()
    target_link_libraries(bevy_${name} ${scope} ${ARG_LINK})

    if(tests AND BEVY_TESTS)
        set(program bevy_${name}_tests)
        add_executable(${program} ${tests})
        target_link_libraries(${program} PRIVATE bevy_${name} GTest::gtest_main)
        foreach(dep IN LISTS ARG_TEST_DEPS)
            target_link_libraries(${program} PRIVATE bevy_${dep})
        endforeach()
        target_link_libraries(${program} PRIVATE ${ARG_TEST_LINK})
        target_compile_definitions(${program} PRIVATE BEVY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
        if(sources)
            set_property(TARGET ${program}
                         PROPERTY LINK_LIBRARY_OVERRIDE_bevy_${name} WHOLE_ARCHIVE)
        endif()

        # Suites named Oracle... compare with libllama, suites named EndToEnd... start the program.
        set(prefix "${BEVY_TEST_PREFIX}${name}.")
        if(name STREQUAL "sim")
            bevy_discover_tests(${program} ${prefix} sim "*" 50)
        else()
            bevy_discover_tests(${program} ${prefix} unit "-*Oracle*:*EndToEnd*" 1)
            bevy_discover_tests(${program} ${prefix} oracle "*Oracle*" 50)
            bevy_discover_tests(${program} ${prefix} e2e "*EndToEnd*" 50)
        endif()
    endif()
endfunction()

# The files of a folder, compiled into a target: see embed_files.cmake.
function(bevy_embed_files target folder)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${target}_files.cc)
    set(script ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake)
    add_custom_command(OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUTPUT=${output} -P ${script}
        DEPENDS ${files} ${script})
    target_sources(${target} PRIVATE ${output})
endfunction()
