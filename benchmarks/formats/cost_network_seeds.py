"""Small valid files of each format, with every kind of constraint; ``mutated_cost_networks`` damages them."""

SEEDS: dict[str, tuple[str, ...]] = {
    "wcsp": (
        "plain 3 3 4 100\n2 3 2\n1 0 0 1\n0 4\n2 0 1 7 3\n0 1 1\n1 2 100\n1 0 3\n2 2 1 1 2\n0 0 5\n1 2 0\n0 2 0\n",
        "shared 4 2 5 30\n2 2 2 2\n-2 0 1 3 2\n0 1 9\n1 1 0\n2 2 3 0 -1\n2 1 2 0 -1\n3 0 1 3 2 2\n0 0 0 9\n"
        "1 1 1 30\n1 3 0 1\n1 2\n",
        "global 4 3 6 50\n3 3 3 2\n4 0 1 2 3 -1 salldiff var 2\n3 0 1 2 -1 sgcc var 1 2 0 1 2 1 0 1\n"
        "4 0 1 2 3 -1 wsum lin 2 <= 3\n4 3 2 1 0 -1 wamong hard 7 2 0 1 1 2\n1 0 2 1\n0 0\n1 2 0 1\n1 3\n",
        "regular 3 3 4 50\n3 3 3\n3 0 1 2 -1 wregular 2 1 0 0 1 1 1 4 0 0 0 1 0 1 1 0 1 2 1 2 1 0 0 1\n"
        "2 0 1 -1 >= 1 2\n2 1 2 -1 disj 1 1 4\n3 0 1 2 -1 knapsackp 2 1 0 1 2 1 1 2 3 1 1 1\n",
        "clique 4 2 3 9\n2 2 2 2\n4 0 1 2 3 -1 clique 1 1 1 1 1 1 1 1 1\n4 0 1 2 3 1 1\n1 0 1 0 0\n"
        "4 0 1 2 3 -1 knapsack 1 1 2 1 1\n",
        "nested 3 3 2 50\n2 3 2\n3 0 1 2 -1 wcsp 3 7 0 0 q 3 3 2 9 2 3 2 2 0 1 0 2 0 0 1 1 1 4\n"
        "2 1 2 0 3 0 0 7 1 1 3 2 1 5\n1 1 0 1\n2 1\n",
    ),
    "cfn": (
        '{\n problem: { name: "m", mustbe: ">-5.0"},\n variables: { "v1": ["a", "b"], v2: 2 },\n# comment\n'
        ' functions: {\n "c0": {scope: [], costs: [-6.0]},\n "c1": {scope: ["v1"], costs: [1.0, 0.5]},\n'
        ' "c12": {scope: ["v1", "v2"], defaultcost: 1.5, costs: ["b" 0 -2.0, 0 1 5.5]},\n'
        ' "c21": {scope: ["v2"], costs: [0.5, -1.0]} }\n}\n',
        "{ problem: {name: S, mustbe: <12.000 }\n variables: {v1: [a b c] v2: [a b c] v3: [a b c] v4: 3}\n"
        " functions: {\n s: { scope: [v1 v2 v3 v4] type : salldiff params : { metric: var cost: 0.7 } }\n"
        " g: { scope: [v1 v2] type: sgcc params: {metric: dec cost: 0.5 bounds: [[0 1 2] [1 0 1]]}}\n"
        " t: { scope: [v3 v4] defaultcost: 1.25 costs: [a 0 -0.5 c 1 3.0] }\n"
        " a: { scope: [v1 v2 v3] type: wamong params: {metric: lin cost: 0.3 values: [0 1] min: 1 max: 2}} } }\n",
        "{{t <9} {[a b] 2 3} {{{0 1} {1 2 3 4}} {{0} 2 {a 1}} {{1 2} 1 {0 0 -2 1 2 4}}}}",
        "{problem: {name: p mustbe: <50.0}\nvariables: {x: 2 y: 3 z: 2}\nfunctions: {\n"
        "u: {scope: [x] costs: [1.5 -2.0]}\nk: {scope: [x y z] type: cfnconstraint params: {\ncfn:\n"
        "{problem: {name: q mustbe: <9.0}\nvariables: {a: 2 b: 3 c: 2}\nfunctions: {\n"
        "f: {scope: [a b] costs: [1.0 0.0 -2.0 4.0 0.0 3.0]}\ng: {scope: [b c] costs: [7.0 1.0 0.0 0.0 -1.0 9.0]}}\n"
        "}\nlb: -1.0 ub: 7.0 duplicatehard: 0 strongduality: 0}}}}\n",
    ),
    "uai": (
        "MARKOV\n3\n2 2 3\n3\n2 0 1\n3 0 1 2\n1 2\n\n4\n 4.000 2.400\n 1.000 0.000\n\n12\n 2.2500 3.2500 3.7500\n"
        " 0.0000 0.0000 10.0000\n 1.8750 4.0000 3.3330\n 2.0000 2.0000 3.4000\n\n3\n0.5 1 2\n",
        "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2 0.436 0.564\n4 0.128 0.872 0.920 0.08\n",
        "MARKOV\n4\n2 2 2 2\n3\n2 1 0\n2 3 1\n3 0 2 3\n4 1 2 3 4\n4 0.1 0.2 0.3 0\n8 1 2 3 4 5 6 7 8\n",
    ),
    "xcsp": (
        """<instance><presentation name="m" maximize="false" format="XCSP 2.1_FRODO"/>
<agents nbAgents="2"><agent name="a"/><agent name="b"/></agents>
<domains nbDomains="2"><domain name="d" nbValues="3">1..3</domain><domain name="e" nbValues="2">-1 4</domain></domains>
<variables nbVariables="3"><variable name="x" domain="d" agent="a"/><variable name="y" domain="d" agent="b"/>
<variable name="z" domain="e" agent="b"/></variables>
<relations nbRelations="2"><relation name="r" arity="2" nbTuples="3" semantics="soft" defaultCost="2">
infinity: 1 1|2 2|0: 3 1</relation>
<relation name="s" arity="1" nbTuples="2" semantics="supports">1|3</relation></relations>
<constraints nbConstraints="3">
<constraint name="c0" arity="2" scope="x y" reference="r"/>
<constraint name="c1" arity="1" scope="y" reference="s"/>
<constraint name="c2" arity="3" scope="x y z" reference="global:allDifferent"/>
</constraints></instance>
""",
        """<instance><presentation maximize="true"/>
<domains><domain name="d">0..2</domain></domains>
<variables><variable name="x" domain="d"/><variable name="y" domain="d"/><variable name="z" domain="d"/></variables>
<relations><relation name="r" arity="2" semantics="conflicts">0 1|2 2</relation>
<relation name="q" arity="2" semantics="soft" defaultCost="-1">3: 0 0|5: 1 2|-infinity: 2 0</relation></relations>
<predicates><predicate name="p"><parameters>int A int B int C</parameters><expression>
<functional>or(ge(abs(sub(A,B)),C),eq(A,mul(2,B)))</functional></expression></predicate></predicates>
<functions><function name="f"><parameters>int A int B</parameters><expression>
<functional>if(lt(A,B),neg(A),add(A,mod(B,2)))</functional></expression></function></functions>
<constraints initialCost="2">
<constraint name="c0" scope="x y" reference="r"/>
<constraint name="c1" scope="y z" reference="q"/>
<constraint name="c2" scope="x z" reference="p"><parameters>z x 1</parameters></constraint>
<constraint name="c3" scope="y z" reference="f"><parameters>z y</parameters></constraint>
<constraint name="c4" scope="x y z" reference="global:allDifferent"><parameters>[ x z 5 ]</parameters></constraint>
</constraints></instance>
""",
    ),
    "pydcop": (
        """name: colours
objective: min
domains:
  colors: {values: [R, G, B]}
  level: {values: [0 .. 2]}
variables:
  v0: {domain: colors}
  v1: {domain: colors, cost_function: 0.5 if v1 == 'R' else 0}
  w: {domain: level}
external_variables:
  sky: {domain: level, initial_value: 1}
constraints:
  c0: {type: intention, function: 10 if v0 == v1 else w ^ sky}
  c1:
    type: extensional
    variables: [v0, w]
    values:
      0: R 0 | G 1 | B 2
      7: R 1 | G 2
    default: 2
  c2:
    type: extensional
    variables: v0
    values: {3: R, .inf: G, 1: B}
agents: [a0, a1]
""",
        """name: lights
objective: max
domains:
  level: {values: [1, 3, 4]}
  flag: {values: [true, false]}
variables:
  x: {domain: level, initial_value: 3}
  y: {domain: level}
  on: {domain: flag}
constraints:
  a: {type: intention, function: 10 - 3 * abs(x - y) - max(x, 2)}
  b: {type: intention, function: x * y if on else -y}
  c:
    type: extensional
    variables: [y, x]
    values:
      5: 1 3 | 4 4
      -2: 3 1
    default: 0
agents:
  r1: {capacity: 100}
  r2: {capacity: 100}
distribution_hints:
  must_host:
    r1: [x]
    r2: [y, a]
""",
    ),
}
