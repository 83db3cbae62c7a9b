/** The part of Google's chart API that the profiler plugin uses, drawn here: `google.charts`, `google.visualization`. */

import { BarChart } from "./columns.js";
import { ComboChart } from "./combo.js";
import { addListener } from "./events.js";
import { LineChart } from "./line.js";
import { PieChart } from "./pie.js";
import { SteppedAreaChart } from "./steps.js";
import { DataTable, arrayToDataTable } from "./data_table.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";

window.google = {
  charts: { load: () => Promise.resolve() },
  visualization: {
    ColumnChart: BarChart,
    ComboChart,
    DataTable,
    LineChart,
    PieChart,
    SteppedAreaChart,
    Table,
    Timeline,
    arrayToDataTable,
    events: { addListener },
  },
};
